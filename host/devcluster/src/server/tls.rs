//! A listener over TLS, with a certificate that is made when it starts and vouches for itself.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Handshakes at once; more clients wait.
const HANDSHAKES_MAX: usize = 64;
/// A client that takes longer is sent away.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections whose handshake is done.
pub(crate) struct Listener {
    local: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Listener {
    /// Listens; beside it the certificate, in PEM.
    pub(crate) fn new(
        listener: TcpListener,
        local: SocketAddr,
    ) -> Result<(Self, String), Box<dyn std::error::Error + Send + Sync>> {
        let names = vec![local.ip().to_string(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())?;
        let (sender, ready) = mpsc::channel(HANDSHAKES_MAX);
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), sender));
        Ok((Self { local, ready }, made.cert.pem()))
    }
}

/// Shakes hands with all who come, each in a task of its own, until nobody listens any more.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
            () = ready.closed() => return,
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
                // Nobody takes it when the server has ended.
                ready.send((stream, from)).await.ok();
            }
        });
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts has ended: nobody comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.local)
    }
}
