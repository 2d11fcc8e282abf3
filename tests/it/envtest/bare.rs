//! A control plane in which nothing happens by itself, but that owned objects go with their owners.

use crate::envtest::{Process, Programs, Source, Supervisor, source};

/// Such a control plane, as long as it is not dropped.
pub(crate) struct Bare {
    client: kube::Client,
    serving: [Process; 2],
    _supervisor: Supervisor,
}

impl Bare {
    /// A client of an administrator.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Ids of the processes that serve the API.
    pub(crate) fn serving(&self) -> Vec<String> {
        self.serving.iter().map(|process| process.id.clone()).collect()
    }
}

/// Starts one. It is always made of programs.
///
/// # Errors
/// What is missing, or why it does not start.
pub(crate) async fn start() -> Result<Bare, String> {
    let Source::Programs(folder) = source()? else {
        return Err("a cluster that exists has controllers: unset USE_EXISTING_CLUSTER".to_owned());
    };
    let programs = Programs::new(&folder)?;
    let mut config = programs.config().await;
    config.default_retry = false;
    let (supervisor, serving) = programs.start(&["garbage-collector-controller"]).await?;
    let client = kube::Client::try_from(config).map_err(|error| error.to_string())?;
    Ok(Bare { client, serving, _supervisor: supervisor })
}
