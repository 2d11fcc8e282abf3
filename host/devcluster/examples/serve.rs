//! Serves a development cluster on a port of this machine, for kubectl, helm and other clients.
//!
//! Prints a kubeconfig on standard output, and when standard input closes what was asked on standard error.
//! `--second 10ms` makes the seconds of controllers short.

use std::{
    io::{Read, Write},
    time::Duration,
};

use barbless_devcluster::{Config, DevCluster};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::default();
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => {}
        ["--second", text] => {
            config.second = Duration::from_millis(text.trim_end_matches("ms").parse()?);
        }
        _ => return Err("usage: serve [--second <n>ms]".into()),
    }
    let cluster = DevCluster::start(config).await?;
    let server = cluster.serve("127.0.0.1:0".parse()?).await?;
    let kubeconfig = DevCluster::kubeconfig(&format!("http://{}", server.local_addr()));
    writeln!(std::io::stdout(), "{kubeconfig}")?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    for request in cluster.journal() {
        writeln!(std::io::stderr(), "{request}")?;
    }
    server.shutdown().await;
    cluster.stop().await;
    Ok(())
}
