//! Renders many charts in one process: jobs as JSON lines on standard input, answers as JSON lines on standard output.
//!
//! A job is `{"id", "chart": "folder", "values": {}, "release": "name", "namespace": "name"}`, and `"texts": true` when
//! what the templates write need not be YAML. An answer has the `id` and either `files`, `manifest` (the objects of the
//! release), `hooks` (what follows them in the output of `helm template`) and `notes`, or `error` (Helm's words) and `code`.
//!
//! With `"rounds": n` the chart is read and rendered so many times, after once to warm up, and the answer has `cpu_seconds`.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use barbless_template::{Error, Files, Input, Rendered, RenderedFile, render, render_files};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(20);

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let job: Value = serde_json::from_str(&line?)?;
        let mut answer = match job["rounds"].as_u64() {
            Some(rounds) => timed(&job, rounds)?,
            None => answer(&job)?,
        };
        answer["id"] = job["id"].clone();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn timed(job: &Value, rounds: u64) -> io::Result<Value> {
    let warm = work(job)?;
    if let Err(error) = warm {
        return Ok(failed(&error));
    }
    let begun = cpu_seconds();
    for _ in 0..rounds {
        std::hint::black_box(work(job)?).ok();
    }
    Ok(json!({"cpu_seconds": cpu_seconds() - begun}))
}

/// What this process has used of processors.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn work(job: &Value) -> io::Result<Result<Rendered, Error>> {
    with_input(job, render)
}

fn answer(job: &Value) -> io::Result<Value> {
    if job["texts"] == true {
        let files = with_input(job, render_files)?;
        return Ok(files.map_or_else(|error| failed(&error), |files| json!({"files": by_path(&files)})));
    }
    Ok(work(job)?.map_or_else(
        |error| failed(&error),
        |rendered| {
            json!({
                "files": by_path(&rendered.files),
                "manifest": rendered.helm_manifest(),
                "hooks": rendered.helm_output().strip_prefix(rendered.helm_manifest()),
                "notes": rendered.notes,
            })
        },
    ))
}

fn with_input<T>(job: &Value, use_it: impl FnOnce(&Input<'_>) -> T) -> io::Result<T> {
    let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let mut files = BTreeMap::new();
    read(Path::new(&text("chart")), "", &mut files)?;
    let files = Files(files);
    let begun = Instant::now();
    let late = || begun.elapsed() > DEADLINE;
    let input = Input {
        values: job["values"].clone(),
        now_unix_ms: 1_700_000_000_000,
        deadline: &late,
        ..Input::first(&files, &text("release"), &text("namespace"))
    };
    Ok(use_it(&input))
}

fn failed(error: &Error) -> Value {
    json!({"error": error.helm(), "code": error.code()})
}

fn by_path(files: &[RenderedFile]) -> BTreeMap<&str, &str> {
    files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect()
}

fn read(folder: &Path, prefix: &str, into: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{path}/"), into)?;
        } else {
            into.insert(path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}
