//! Admission: webhooks that change or refuse what clients write, and policies that refuse it.
//!
//! The registry is synchronous and tries a write again when another came between, so it cannot wait for a webhook. It
//! asks a [`Gate`] instead: when the gate has no answer for this state of the object, it keeps the question and the try
//! ends; the handler of the request puts the question to the webhooks ([`hooks`]), gives the answer to the gate and tries
//! again. What was answered is not asked twice, so every webhook sees each state once.

mod client;
mod hooks;
pub(crate) mod policies;
mod rules;
pub(crate) mod validation;

use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use client::Services;
pub(crate) use hooks::{Attributes, Hooks};

use crate::status::ApiError;

/// How often the object may change under a request while webhooks think about it.
pub(crate) const ROUNDS_MAX: usize = 32;

/// When a gate is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before validation: the object may be changed.
    Mutate,
    /// After it.
    Validate,
}

/// A state of an object that the webhooks have not seen yet.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) phase: Phase,
    /// The version of the object that is written over; 0 for none.
    pub(crate) revision: u64,
    pub(crate) name: String,
    pub(crate) object: Option<Value>,
    pub(crate) old: Option<Value>,
}

/// The answer to a question.
#[derive(Debug, Clone)]
struct Answer {
    phase: Phase,
    revision: u64,
    object: Option<Value>,
}

/// What one request knows of the webhooks' opinions.
#[derive(Debug)]
pub(crate) struct Gate {
    uid: String,
    suffix: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    answers: Vec<Answer>,
    question: Option<Question>,
}

impl Gate {
    pub(crate) fn new(suffix: String) -> Self {
        Self { uid: uuid::Uuid::new_v4().to_string(), suffix, state: Mutex::default() }
    }

    /// The uid of what is created: the same in every try.
    pub(crate) fn uid(&self) -> String {
        self.uid.clone()
    }

    /// The end of a generated name: the same in every try.
    pub(crate) fn suffix(&self) -> &str {
        &self.suffix
    }

    /// What became of the object, if its webhooks were asked; otherwise an error that ends the try.
    pub(crate) fn pass(
        &self,
        phase: Phase,
        revision: u64,
        name: &str,
        state: impl FnOnce() -> (Option<Value>, Option<Value>),
    ) -> Result<Option<Value>, ApiError> {
        let mut inner = self.state.lock();
        if let Some(answer) = inner.answers.iter().find(|answer| answer.phase == phase && answer.revision == revision) {
            return Ok(answer.object.clone());
        }
        let (object, old) = state();
        inner.question = Some(Question { phase, revision, name: name.to_owned(), object, old });
        Err(ApiError::internal("a webhook has not been asked"))
    }

    /// What ended the last try, if that was a question.
    pub(crate) fn question(&self) -> Option<Question> {
        self.state.lock().question.take()
    }

    /// Answers it.
    pub(crate) fn answer(&self, question: &Question, object: Option<Value>) {
        let answer = Answer { phase: question.phase, revision: question.revision, object };
        self.state.lock().answers.push(answer);
    }
}
