//! Calling a webhook: over HTTPS, or in the process when its Service is registered here.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use base64::Engine;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;

use crate::{
    json::{int, text},
    registry::Registry,
};

/// A review with its objects comes back at most as large as requests may be.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Services that answer in the process, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Services {
    known: RwLock<BTreeMap<(String, String), Router>>,
}

impl Services {
    pub(crate) fn register(&self, namespace: &str, name: &str, router: Router) {
        self.known.write().insert((namespace.to_owned(), name.to_owned()), router);
    }

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.known.write().remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Router> {
        self.known.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Posts a document to where a `clientConfig` says, and reads the one that comes back.
    ///
    /// # Errors
    /// In the words of the API, which names the address.
    pub(crate) async fn call(
        &self,
        registry: &Registry,
        config: &Value,
        document: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        let place = Place::of(config);
        let address = format!("{}?timeout={}s", place.address, timeout.as_secs());
        let post = |why: String| format!("Post {address:?}: {why}");
        let uri = address.parse::<Uri>().map_err(|error| post(error.to_string()))?;
        let asking = async {
            let body = Bytes::from(document.to_string());
            let request = |uri: &str| {
                Request::post(uri)
                    .header(header::HOST, place.host.as_str())
                    .header(header::CONTENT_TYPE, "application/json")
                    .header(header::ACCEPT, "application/json, */*")
                    .header(header::USER_AGENT, "kube-apiserver-admission")
            };
            let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            let Some((namespace, name)) = &place.service else {
                let request = request(path).body(Full::new(body)).map_err(|error| post(error.to_string()))?;
                return over_tls(&place, &uri, config, request).await.map_err(post);
            };
            match self.find(namespace, name) {
                Some(router) => {
                    let request = request(path).body(Body::from(body)).map_err(|error| post(error.to_string()))?;
                    let Ok(response) = router.oneshot(request).await;
                    read(response).await.map_err(post)
                }
                None if registry.store.get("/services", namespace, name).is_none() => {
                    Err(post(format!("service {name:?} not found")))
                }
                None => Err(post(format!("no endpoints available for service {name:?}"))),
            }
        };
        let answer = tokio::time::timeout(timeout, asking).await;
        let (status, bytes) = answer.map_err(|_| post("context deadline exceeded".to_owned()))??;
        if !status.is_success() {
            return Err(unexpected(status));
        }
        serde_json::from_slice(&bytes).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
    }
}

/// What a client says of an answer that is no success.
fn unexpected(status: StatusCode) -> String {
    let said = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => "an error on the server (\"unknown\") has prevented the request from succeeding",
        code => return format!("the server responded with the status code {code} but did not return more information"),
    };
    said.to_owned()
}

/// Where a `clientConfig` points to.
struct Place {
    address: String,
    host: String,
    port: u16,
    service: Option<(String, String)>,
}

impl Place {
    fn of(config: &Value) -> Self {
        if let Some(service) = config.get("service").filter(|service| service.is_object()) {
            let (namespace, name) = (text(service, &["namespace"]), text(service, &["name"]));
            let port = int(service, &["port"]).and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let path = text(service, &["path"]).trim_start_matches('/');
            let host = format!("{name}.{namespace}.svc");
            let address = format!("https://{host}:{port}/{path}");
            return Self { address, host, port, service: Some((namespace.to_owned(), name.to_owned())) };
        }
        let address = text(config, &["url"]).to_owned();
        let uri = address.parse::<Uri>().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().to_owned();
        let port = uri.as_ref().and_then(Uri::port_u16).unwrap_or(443);
        Self { address, host, port, service: None }
    }
}

async fn read<B>(response: Response<B>) -> Result<(StatusCode, Bytes), String>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    body.map(|body| (status, body.to_bytes())).map_err(|error| error.to_string())
}

async fn over_tls(
    place: &Place,
    uri: &Uri,
    config: &Value,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), String> {
    if uri.scheme_str() != Some("https") {
        return Err("unsupported protocol scheme".to_owned());
    }
    let host = place.host.trim_start_matches('[').trim_end_matches(']');
    let tls = tls_config(text(config, &["caBundle"]))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connected = TcpStream::connect((host, place.port)).await;
    let stream = connected.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("dial tcp {host}:{}: connect: connection refused", place.port)
        }
        _ => format!("dial tcp: {error}"),
    })?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
    let stream = stream.map_err(|error| handshake(&error, host))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let driving = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        read(response).await
    };
    let mut driving = std::pin::pin!(driving);
    // The connection lives as long as its one request, and ends with it when the request is given up.
    tokio::select! {
        biased;
        answer = &mut driving => answer,
        ended = connection => match ended {
            // What came before the end is still to be read.
            Ok(()) => driving.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// A failed handshake in the words of the API.
fn handshake(error: &std::io::Error, host: &str) -> String {
    use rustls::{CertificateError as C, Error as E};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<E>());
    let why = match inner {
        Some(E::InvalidCertificate(C::UnknownIssuer | C::BadSignature)) => {
            "certificate signed by unknown authority".to_owned()
        }
        Some(E::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. })) => {
            format!("certificate is not valid for any names, but wanted to match {host}")
        }
        Some(E::InvalidCertificate(
            C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. },
        )) => "certificate has expired or is not yet valid".to_owned(),
        Some(E::InvalidCertificate(other)) => other.to_string(),
        _ => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// Trust in the certificates of a bundle: as authorities, and each in itself.
fn tls_config(bundle: &str) -> Result<ClientConfig, String> {
    let pem = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    let trusted = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect::<Vec<_>>();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = (!roots.is_empty())
        .then(|| WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build())
        .transpose()
        .map_err(|error| error.to_string())?;
    let verifier = Arc::new(Verifier { authorities, trusted, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Takes what a chain to the bundle vouches for, and a certificate that is in the bundle itself: people put the one that
/// their webhook signed for itself there, which the API takes and a strict verifier does not.
#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(authorities) = &self.authorities else {
            return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        };
        authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
