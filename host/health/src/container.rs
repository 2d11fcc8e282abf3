//! What is wrong with the containers of a Pod, in one sentence that names the container.

use serde_json::Value;

use crate::object::{Fields, Reading};

/// Names the container that keeps a Pod from working, with the reason and the last exit code: `container "web" is
/// waiting: CrashLoopBackOff (back-off 40s …), last exit code 1 (Error)`. None if no container has a problem, or if the
/// statuses of the containers cannot be read.
///
/// Init containers come first, since the others wait for them. A container that cannot start goes before one that has
/// failed, and that before one that runs again after a failure but is not ready.
pub fn container_problem(pod: &Value) -> Option<String> {
    let fields = Fields::of(pod);
    let mut containers = Vec::new();
    for (word, path) in [("init container", "status.initContainerStatuses"), ("container", "status.containerStatuses")]
    {
        // What cannot be read names nothing, and the other list may still.
        let statuses = fields.items(path).unwrap_or_default();
        containers.extend(statuses.into_iter().map(|status| Container { word, status }));
    }
    [Container::blocked, Container::failed, Container::restarted]
        .into_iter()
        .find_map(|problem| containers.iter().find_map(|container| problem(container).ok().flatten()))
}

struct Container<'a> {
    word: &'static str,
    status: Fields<'a>,
}

impl Container<'_> {
    /// It waits after an error. `ContainerCreating` and `PodInitializing` are no errors.
    fn blocked(&self) -> Reading<Option<String>> {
        let reason = self.status.text("state.waiting.reason")?;
        let is_error = reason.starts_with("Err")
            || reason.ends_with("Error")
            || reason.ends_with("BackOff")
            || matches!(reason, "InvalidImageName" | "RegistryUnavailable");
        if !is_error {
            return Ok(None);
        }
        let mut text = format!("{} is waiting: {reason}", self.named()?);
        let message = self.status.text("state.waiting.message")?;
        if !message.is_empty() {
            text.push_str(&format!(" ({message})"));
        }
        if let Some(exit) = self.exit("lastState")? {
            text.push_str(&format!(", last {}", exit.text));
        }
        Ok(Some(text))
    }

    /// It has ended with an error and was not started again yet, or never will be.
    fn failed(&self) -> Reading<Option<String>> {
        let Some(exit) = self.exit("state")?.filter(|exit| exit.is_failure) else { return Ok(None) };
        let mut text = format!("{} failed: {}", self.named()?, exit.text);
        let message = self.status.text("state.terminated.message")?.trim();
        if !message.is_empty() {
            text.push_str(&format!(": {message}"));
        }
        Ok(Some(text))
    }

    /// It runs, is not ready, and has failed before.
    fn restarted(&self) -> Reading<Option<String>> {
        if self.status.flag("ready")? || !self.status.has_object("state.running")? {
            return Ok(None);
        }
        let Some(exit) = self.exit("lastState")?.filter(|exit| exit.is_failure) else { return Ok(None) };
        let restarts = self.status.count("restartCount")?;
        let times = if restarts == 1 { "time" } else { "times" };
        let named = self.named()?;
        Ok(Some(format!("{named} is not ready after it restarted {restarts} {times}, last {}", exit.text)))
    }

    /// How it ended, if in this state it has.
    fn exit(&self, state: &str) -> Reading<Option<Exit>> {
        if !self.status.has_object(&format!("{state}.terminated"))? {
            return Ok(None);
        }
        let code = self.status.count(&format!("{state}.terminated.exitCode"))?;
        let reason = self.status.text(&format!("{state}.terminated.reason"))?;
        let is_failure = code != 0 || !matches!(reason, "" | "Completed");
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        Ok(Some(Exit { text: format!("exit code {code}{reason}"), is_failure }))
    }

    fn named(&self) -> Reading<String> {
        Ok(format!("{} \"{}\"", self.word, self.status.text("name")?))
    }
}

/// How a container ended: `exit code 137 (OOMKilled)`.
struct Exit {
    text: String,
    is_failure: bool,
}

#[cfg(test)]
mod tests;
