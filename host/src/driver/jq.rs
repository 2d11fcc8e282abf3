//! jq programs of packages: filters of bindings, and patches of objects.
//!
//! The sandbox bounds each evaluation. Here it is kept off the threads of the loop, and one application has one
//! evaluation at a time, so that slow programs of one do not take the turns of all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use barbless_cluster::{Jq, JqFailure};
use barbless_domain::declaration::Hook;
use barbless_domain::declaration::v1::Configuration;
use barbless_domain::event::Failure;
use barbless_domain::hook::{Binding, KubernetesBinding, Projection};
use barbless_domain::limits::JQ_FILTERS_PER_PACKAGE;
use barbless_domain::package::Problem;
use barbless_sandbox::{JqError, JqFilter, Sandbox};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Context;
use super::package::failure_of;

/// Pause after the evaluator could not be loaded, in milliseconds.
const RETRY_MS: u64 = 5_000;

/// The filters of the bindings of a package, each distinct program once.
#[derive(Debug, Default)]
pub(crate) struct Filters(BTreeMap<String, JqFilter>);

impl Filters {
    /// Reads the programs of the bindings of all hooks. `files` are the configurations that some of them come from.
    ///
    /// # Errors
    /// All programs that are none, each with its place; or that the evaluator cannot be had, which passes.
    pub(crate) async fn read(
        sandbox: &Sandbox,
        turns: &Arc<Semaphore>,
        hooks: &[Hook],
        files: &BTreeMap<String, Configuration>,
    ) -> Result<Self, Failure> {
        let mut filters = BTreeMap::new();
        let mut problems = Vec::new();
        for hook in hooks {
            for (index, binding) in hook.declaration.bindings.iter().enumerate() {
                let Binding::Kubernetes(KubernetesBinding { name, filter: Projection::Jq(program), .. }) = binding
                else {
                    continue;
                };
                if filters.contains_key(program) {
                    continue;
                }
                if filters.len() + problems.len() >= JQ_FILTERS_PER_PACKAGE {
                    let message = format!("more than {JQ_FILTERS_PER_PACKAGE} different jq programs");
                    return Err(Failure::new("JqTooMany", message).hint("name fields, or export a filter"));
                }
                match compiled(sandbox, turns, program).await {
                    Ok(filter) => {
                        filters.insert(program.clone(), filter);
                    }
                    Err(error @ JqError::Unavailable { .. }) => {
                        let failure = Failure::new(error.reason(), crate::report::chain(&error));
                        return Err(Failure { retry_after_ms: Some(RETRY_MS), ..failure });
                    }
                    Err(error) => {
                        let message = format!("binding '{name}': {}", crate::report::chain(&error));
                        let written = files.get(hook.name());
                        let written =
                            written.and_then(|file| file.filter_problem(name, error.reason(), message.clone()));
                        let problem = written.unwrap_or_else(|| Problem {
                            reason: error.reason().to_owned(),
                            file: hook.component.clone(),
                            line: None,
                            column: None,
                            path: format!("{}.bindings[{index}].filter", hook.name()),
                            message,
                            hint: None,
                        });
                        problems.push(Problem { hint: Some(error.hint().to_owned()), ..problem });
                    }
                }
            }
        }
        if problems.is_empty() { Ok(Self(filters)) } else { Err(failure_of(&problems)) }
    }

    /// What the program of a binding makes of an object: its output; null if there is none; a list if there are several.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn project(
        &self,
        turns: &Arc<Semaphore>,
        program: &str,
        object: &Value,
    ) -> Result<Value, JqError> {
        let filter = self.0.get(program).ok_or_else(|| unavailable("the program was not read"))?;
        let mut outputs = evaluate(filter, turns, object).await?;
        Ok(if outputs.len() > 1 { Value::Array(outputs) } else { outputs.pop().unwrap_or(Value::Null) })
    }
}

/// Evaluates the programs of the jq patches of one run, each distinct program read once.
pub(super) struct Patches<'a> {
    context: &'a Context,
    programs: Mutex<BTreeMap<String, JqFilter>>,
}

impl<'a> Patches<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        Self { context, programs: Mutex::default() }
    }

    async fn outputs(&self, program: &str, object: &Value) -> Result<Vec<Value>, JqError> {
        // Whole whatever happens while the lock is held.
        let known = self.programs.lock().unwrap_or_else(PoisonError::into_inner).get(program).cloned();
        let filter = match known {
            Some(filter) => filter,
            None => {
                let filter = compiled(&self.context.services.sandbox, &self.context.instance.jq, program).await?;
                let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
                programs.entry(program.to_owned()).or_insert(filter).clone()
            }
        };
        evaluate(&filter, &self.context.instance.jq, object).await
    }
}

/// A program, read in a thread that may be busy: reading one costs CPU time, and a turn in the evaluator is waited for.
async fn compiled(sandbox: &Sandbox, turns: &Arc<Semaphore>, program: &str) -> Result<JqFilter, JqError> {
    let (sandbox, program, runtime) = (sandbox.clone(), program.to_owned(), tokio::runtime::Handle::current());
    let turn = turn(turns).await?;
    let reading = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        runtime.block_on(sandbox.jq(&program))
    });
    match reading.await {
        Ok(read) => read,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Jq for Patches<'_> {
    fn evaluate<'a>(&'a self, program: &'a str, object: &'a Value) -> BoxFuture<'a, Result<Vec<Value>, JqFailure>> {
        Box::pin(async move {
            self.outputs(program, object).await.map_err(|error| JqFailure {
                reason: error.reason(),
                message: format!("{} ({})", crate::report::chain(&error), error.hint()),
            })
        })
    }
}

/// All outputs of a program for an object.
async fn evaluate(filter: &JqFilter, turns: &Arc<Semaphore>, object: &Value) -> Result<Vec<Value>, JqError> {
    let text = serde_json::to_vec(object).map_err(|error| JqError::BadInput { message: error.to_string() })?;
    let outputs = match filter.pick(&text) {
        Some(picked) => picked?,
        None => {
            let filter = filter.clone();
            let turn = turn(turns).await?;
            let work = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                filter.apply(&text)
            });
            work.await.map_err(|error| unavailable(&error.to_string()))??
        }
    };
    let read = |text: &Vec<u8>| serde_json::from_slice(text).map_err(|error| unavailable(&error.to_string()));
    outputs.iter().map(read).collect()
}

/// The turn of an application. It goes with the work, which goes on when nobody waits for it any more.
async fn turn(turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, JqError> {
    Arc::clone(turns).acquire_owned().await.map_err(|_| unavailable("the application ends"))
}

fn unavailable(what: &str) -> JqError {
    JqError::Unavailable { what: what.to_owned() }
}
