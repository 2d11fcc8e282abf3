//! The Kubernetes API in this process: how `dev` starts it, and `barbless devcluster`, which serves it by itself for kubectl
//! and other clients.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use barbless_devcluster::{Config, DataTrouble, DevCluster, Error};

use crate::app;
use crate::cli::Devcluster;
use crate::dev;
use crate::report::{Exit, Report};

/// Runs the command until the user, or whoever started it, wants it to end.
///
/// # Errors
/// A report for the user.
pub(crate) async fn command(args: &Devcluster) -> Result<Exit, Report> {
    let devcluster = start_with(args.data_dir.as_deref(), !args.no_controllers, args.rbac).await?;
    // Clients show tokens only over TLS.
    let serving = match args.rbac {
        true => devcluster.serve_tls(args.listen()).await,
        false => devcluster.serve(args.listen()).await,
    };
    let server = serving.map_err(|error| {
        Report::of("ListenFailed", &error).hint("give another --address or --port; port 0 takes a free one")
    })?;
    if let Some(path) = &args.kubeconfig {
        let token = args.rbac.then(|| devcluster.admin_token());
        write_private(path, &server.kubeconfig(token.as_deref()))?;
    }
    // Whoever started this may read it from a pipe.
    app::print(&format!("{}\n", server.url()))?;
    dev::interrupted().await;
    server.shutdown().await;
    devcluster.stop().await;
    Ok(Exit::Ok)
}

/// Starts a development cluster that is kept in the folder `cluster` of a data folder, if one is given.
///
/// # Errors
/// A report for the user.
pub(crate) async fn start(data_dir: Option<&Path>, controllers: bool) -> Result<DevCluster, Report> {
    start_with(data_dir, controllers, false).await
}

async fn start_with(data_dir: Option<&Path>, controllers: bool, rbac: bool) -> Result<DevCluster, Report> {
    let config = Config { data_dir: data_dir.map(|dir| dir.join("cluster")), controllers, rbac, ..Config::default() };
    DevCluster::start(config).await.map_err(|error| unusable(data_dir, &error))
}

/// Why there is no cluster. To remove a folder is advice for one that is damaged only.
fn unusable(data_dir: Option<&Path>, error: &Error) -> Report {
    let failed = |code| Report::of(code, error);
    let report = match error.data_trouble() {
        Some(DataTrouble::InUse) => Report::new("DataDirInUse", "another process has the development cluster open")
            .hint("end the other barbless dev first, or give another --data-dir"),
        Some(DataTrouble::Denied) => {
            failed("DataDirUnusable").hint("let this user write to the folder, or give another --data-dir")
        }
        Some(DataTrouble::Damaged) => failed("DevClusterFailed")
            .hint("the data of the folder may be damaged: remove the folder, or give another --data-dir"),
        Some(DataTrouble::Other) => {
            failed("DataDirUnusable").hint("is there room on the disk, and is the folder on it?")
        }
        None => failed("DevClusterFailed"),
    };
    match data_dir {
        Some(dir) => report.at(dir.display().to_string()),
        None => report,
    }
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

#[cfg(test)]
mod tests;
