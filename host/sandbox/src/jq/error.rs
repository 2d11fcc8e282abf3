//! Why a jq program is refused, or gives no answer.

use barbless_domain::run::Clock;

/// Why a jq program is refused, or gives no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JqError {
    /// It is no program, or uses what does not exist here.
    #[error("the jq program is wrong at line {line}, column {column}: {message}")]
    BadProgram {
        /// What is wrong.
        message: String,
        /// Where, in bytes.
        offset: usize,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What to do about it.
        hint: String,
    },
    /// The program ended with an error of its own, for example by indexing a number.
    #[error("the jq program failed: {message}")]
    Failed {
        /// Its text.
        message: String,
    },
    /// The input is no JSON.
    #[error("the input of the jq program is not JSON: {message}")]
    BadInput {
        /// What is wrong.
        message: String,
    },
    /// It did not end in time.
    #[error("the jq program used more than {limit_ms} ms of {} time", match clock { Clock::Cpu => "CPU", Clock::Wall => "wall-clock" })]
    TimedOut {
        /// Which clock.
        clock: Clock,
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// Program, input or output exceed a bound.
    #[error("the jq program has more than {limit} {what}")]
    TooLarge {
        /// What: `bytes of the program`, `bytes of the input`, `levels of the input`, `bytes of output`, `outputs`.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// It used up its memory.
    #[error("the jq program used more than {limit} bytes of {what}")]
    OutOfMemory {
        /// `memory`, or `stack`: of recursion.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// The evaluator broke off. A defect of it that this program meets; the next object is evaluated as if nothing had
    /// been.
    #[error("the jq program crashed its evaluator: {message}")]
    Crashed {
        /// What is known.
        message: String,
    },
    /// There is no evaluator. Not the fault of the program; to be repeated.
    #[error("the jq program cannot be evaluated now: {what}")]
    Unavailable {
        /// Why.
        what: String,
    },
}

impl JqError {
    /// Stable reason in PascalCase.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadProgram { .. } => "JqBadProgram",
            Self::Failed { .. } => "JqFailed",
            Self::BadInput { .. } => "JqBadInput",
            Self::TimedOut { .. } => "JqTimedOut",
            Self::TooLarge { .. } => "JqTooLarge",
            Self::OutOfMemory { .. } => "JqOutOfMemory",
            Self::Crashed { .. } => "JqCrashed",
            Self::Unavailable { .. } => "JqUnavailable",
        }
    }

    /// What a user can do.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            Self::BadProgram { hint, .. } => hint,
            Self::Failed { .. } => "use `?` or `//` for fields that some objects do not have",
            Self::BadInput { .. } => "the object is damaged; get it again",
            Self::TimedOut { .. } => "a filter is for picking fields: let the hook do what takes longer",
            Self::TooLarge { .. } => "pick fewer fields, or let the hook do the work",
            Self::OutOfMemory { .. } => "bound recursion and ranges, or let the hook do the work",
            Self::Crashed { .. } => "write the filter in another way, and report it",
            Self::Unavailable { .. } => "it is tried again with the next change of the object",
        }
    }

    /// A refusal with the place and a hint. `missing` is what the program uses and does not exist.
    pub(super) fn bad_program(program: &str, offset: usize, message: String, missing: &str) -> Self {
        let before = program.get(..offset).unwrap_or(program);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self::BadProgram { message, offset: before.len(), line, column, hint: hint(missing).to_owned() }
    }
}

fn hint(missing: &str) -> &'static str {
    match missing.split('/').next().unwrap_or_default() {
        "env" | "$ENV" => "a filter sees nothing but its object; take settings from the values in the hook",
        "input" | "inputs" | "input_filename" | "input_line_number" => "a filter is applied to one object at a time",
        "now" | "localtime" => "a filter must give the same for the same object; compare times in the hook",
        "halt" | "halt_error" => "use `empty` for no output and `error` for a failure",
        "debug" | "stderr" => "a filter has no output beside its result; log in the hook",
        "import" | "include" => "write the definitions into the program",
        "" => "see the manual of jq; what is there is what gojq has",
        _ => "check the spelling and the number of arguments, separated by `;`",
    }
}
