//! `barbless devcluster`: the Kubernetes API of `dev` by itself, for kubectl and other clients.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use barbless_devcluster::DevCluster;

use crate::app;
use crate::cli::Devcluster;
use crate::dev;
use crate::report::{Exit, Report};

/// Runs the command until the user, or whoever started it, wants it to end.
///
/// # Errors
/// A report for the user.
pub(crate) async fn command(args: &Devcluster) -> Result<Exit, Report> {
    let devcluster = dev::start_devcluster(args.data_dir.as_deref(), !args.no_controllers).await?;
    let server = devcluster.serve(args.listen()).await.map_err(|error| {
        Report::of("ListenFailed", &error).hint("give another --address or --port; port 0 takes a free one")
    })?;
    let url = format!("http://{}", server.local_addr());
    if let Some(path) = &args.kubeconfig {
        write_private(path, &DevCluster::kubeconfig(&url))?;
    }
    // Whoever started this may read it from a pipe.
    app::print(&format!("{url}\n"))?;
    dev::interrupted().await;
    server.shutdown().await;
    devcluster.stop().await;
    Ok(Exit::Ok)
}

/// Writes a file that others may not read: clients warn of a kubeconfig that they may.
fn write_private(path: &Path, text: &str) -> Result<(), Report> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|error| Report::new("KubeconfigNotWritten", error.to_string()).at(path.display().to_string()))
}
