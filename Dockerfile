# The last stage is empty but for the program, the libraries that it is linked with and the certificates: no shell, no
# package manager. It runs as nobody and writes only to its data folder.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p barbless
# `ldd` says which libraries, the loader included; `--parents` keeps their paths.
RUN mkdir -p /out/usr/local/bin /out/data /out/tmp \
 && install -m 0755 -s target/release/barbless /out/usr/local/bin/barbless \
 && ldd target/release/barbless | grep -o '/[^ ]*' | sort -u | xargs -I{} cp -L --parents {} /out \
 && cp --parents /etc/ssl/certs/ca-certificates.crt /out \
 && chown 65532:65532 /out/data /out/tmp

FROM scratch
COPY --from=build /out /
USER 65532:65532
ENV BARBLESS_DATA_DIR=/data
VOLUME /data
ENTRYPOINT ["/usr/local/bin/barbless"]
