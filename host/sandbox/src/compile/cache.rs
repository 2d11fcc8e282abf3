//! Compiled components on disk.
//!
//! An entry is machine code that this process would run, so only what was written with the key of the folder is read:
//! each file ends with a keyed digest over its own name and content. The name has the digest of the component and the
//! settings of the engine. A file that is damaged, foreign or of another engine is compiled again, never trusted.
//! Files are made under another name and renamed, and never changed afterwards: they are mapped into memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{Hash as _, Hasher};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::hex;
use crate::error::{LoadError, SandboxError};

/// Bytes of the key, and of the digest at the end of a file.
const KEY_BYTES: usize = 32;
/// Name of the key file.
const KEY_NAME: &str = "key";
/// Entries that are kept; beyond that the oldest go.
const ENTRIES_MAX: usize = 4096;

/// A folder of compiled components.
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; KEY_BYTES],
    /// Digest of the settings of the engine.
    engine: String,
}

impl Cache {
    pub(crate) fn open(folder: PathBuf, engine: &Engine) -> Result<Self, SandboxError> {
        let failed = |what| {
            let path = folder.display().to_string();
            move |source| SandboxError::Cache { path, what, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("make it"))?;
        own(&folder).map_err(failed("keep others out of it"))?;
        let key = key(&folder).map_err(failed("read or make its key"))?;
        Ok(Self { folder, key, engine: fingerprint(engine) })
    }

    fn name(&self, digest: &str) -> String {
        format!("{digest}-{}.cwasm", self.engine)
    }

    fn mac(&self, name: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(name.as_bytes());
        mac.update(&[0]);
        mac
    }

    /// Loads an entry if it is there and ours.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let name = self.name(digest);
        let path = self.folder.join(&name);
        match self.verify(&name, &path) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(file = name, "a compiled component is damaged or not ours; it is compiled again");
                return None;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = name, %error, "a compiled component cannot be read; it is compiled again");
                return None;
            }
        }
        #[expect(unsafe_code, reason = "the file has just been found to be ours by its keyed digest")]
        // SAFETY: the content was made by this engine and has not changed: the keyed digest covers name and content,
        // the folder is writable by this user only, and files in it are replaced, never written to.
        let loaded = unsafe { Component::deserialize_file(engine, &path) };
        loaded.map_err(|error| tracing::warn!(file = name, "a compiled component does not load: {error:#}")).ok()
    }

    fn verify(&self, name: &str, path: &Path) -> io::Result<bool> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        let Some(content) = meta.len().checked_sub(KEY_BYTES as u64).filter(|_| meta.is_file()) else {
            return Ok(false);
        };
        let mut mac = self.mac(name);
        let mut buffer = vec![0; 64 * 1024];
        let mut reader = Read::by_ref(&mut file).take(content);
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                read => mac.update(buffer.get(..read).unwrap_or_default()),
            }
        }
        let mut found = [0; KEY_BYTES];
        file.read_exact(&mut found)?;
        Ok(mac.verify_slice(&found).is_ok())
    }

    /// Writes an entry.
    fn store(&self, digest: &str, artefact: &[u8]) -> io::Result<PathBuf> {
        let name = self.name(digest);
        let mut mac = self.mac(&name);
        mac.update(artefact);
        let path = self.folder.join(name);
        let temporary = Temporary::new(&self.folder);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
        file.write_all(artefact)?;
        file.write_all(&mac.finalize().into_bytes())?;
        // A power failure must not leave a name without content; the digest would find it, at the price of a warning.
        file.sync_all()?;
        std::fs::rename(&temporary.0, &path)?;
        self.prune();
        Ok(path)
    }

    /// Removes the oldest entries when there are too many. Mapped files live on until they are unmapped.
    fn prune(&self) {
        let Ok(folder) = std::fs::read_dir(&self.folder) else { return };
        let mut entries: Vec<_> = folder
            .filter_map(Result::ok)
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "cwasm"))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        if entries.len() <= ENTRIES_MAX {
            return;
        }
        entries.sort();
        let excess = entries.len() - ENTRIES_MAX;
        for (_, path) in entries.into_iter().take(excess) {
            // Another process may have been faster.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Keeps what was just compiled, and loads it.
pub(crate) fn admit(
    engine: &Engine,
    cache: Option<&Cache>,
    digest: &str,
    artefact: &[u8],
) -> Result<Component, LoadError> {
    if let Some(cache) = cache {
        match cache.store(digest, artefact) {
            // From the file, so that its pages are shared and can be dropped.
            Ok(_) => {
                if let Some(component) = cache.load(engine, digest) {
                    return Ok(component);
                }
            }
            Err(error) => tracing::warn!(%error, "a compiled component cannot be kept"),
        }
    }
    #[expect(unsafe_code, reason = "the bytes come from our own compiler")]
    // SAFETY: the bytes were made a moment ago by our own compiler, in this process or in a child that runs our code.
    let loaded = unsafe { Component::deserialize(engine, artefact) };
    loaded.map_err(|error| LoadError::Engine { source: error.into() })
}

/// Makes sure that the folder belongs to this user and nobody else can write to it.
fn own(folder: &Path) -> io::Result<()> {
    let meta = std::fs::metadata(folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Reads the key of a folder, or makes one. Of several processes that make one at the same time, one wins.
fn key(folder: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = folder.join(KEY_NAME);
    for _ in 0..3 {
        match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let mut key = [0; KEY_BYTES];
        random(&mut key)?;
        let temporary = Temporary::new(folder);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
        file.write_all(&key)?;
        file.sync_all()?;
        // Unlike a rename, a link does not replace the key of another process.
        match std::fs::hard_link(&temporary.0, &path) {
            Ok(()) => return Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    read_key(&path)
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can read the key"));
    }
    let mut key = [0; KEY_BYTES];
    file.read_exact(&mut key)?;
    Ok(key)
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(())
}

/// A file that goes away unless it was renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn new(folder: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Two containers that share the folder may have the same process number.
        let mut unique = [0; 8];
        let unique = random(&mut unique).map_or(number, |()| u64::from_le_bytes(unique));
        Self(folder.join(format!(".tmp-{}-{number}-{unique:016x}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Digest of everything that code of this engine depends on.
fn fingerprint(engine: &Engine) -> String {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            // Nobody asks; the whole digest is taken instead.
            0
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    hex(sha.0.finalize().get(..16).unwrap_or_default())
}
