//! Packed charts (`.tgz`) in `charts/`: regular files only, with bounded sizes.

use std::{collections::BTreeMap, io::Read as _};

use crate::limits::Limits;

const BLOCK: usize = 512;
/// Unpacked bytes of one archive, as in Helm 4.
const UNPACKED_MAX: u64 = 100 << 20;

/// The files of a packed chart (`.tgz`), without the folder that all of them are in.
///
/// # Errors
/// The archive is damaged, too large, or has a path that leads out of it.
pub fn unpack(bytes: &[u8], limits: &Limits) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut tar = Vec::new();
    let read = flate2::read::GzDecoder::new(bytes).take(UNPACKED_MAX + 1).read_to_end(&mut tar);
    read.map_err(|error| format!("cannot unpack the archive: {error}"))?;
    if tar.len() as u64 > UNPACKED_MAX {
        return Err(format!("the archive unpacks to more than {UNPACKED_MAX} bytes"));
    }
    let mut files = BTreeMap::new();
    let mut at = 0;
    let mut long_name: Option<String> = None;
    while let Some(header) = tar.get(at..at + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let size = number(&header[124..136]).ok_or("the archive is damaged: bad size of an entry")?;
        let start = at + BLOCK;
        let end = start.checked_add(size).filter(|end| *end <= tar.len()).ok_or("the archive is cut off")?;
        let content = &tar[start..end];
        at = end.next_multiple_of(BLOCK);
        let name = long_name.take().unwrap_or_else(|| {
            let (name, prefix) = (field(&header[..100]), field(&header[345..500]));
            if &header[257..262] == b"ustar" && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
        });
        match header[156] {
            b'0' | 0 => {
                let path = safe_path(&name).ok_or_else(|| format!("the archive has an illegal path: {name}"))?;
                if let Some((_, path)) = path.split_once('/') {
                    files.insert(path.to_string(), content.to_vec());
                }
                if files.len() > limits.templates * 4 {
                    return Err("the archive has too many files".into());
                }
            }
            // GNU and POSIX ways of names that do not fit.
            b'L' => long_name = Some(field(content)),
            b'x' => long_name = pax_path(content),
            _ => {}
        }
    }
    if files.is_empty() { Err("the archive has no files".into()) } else { Ok(files) }
}

fn field(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn number(bytes: &[u8]) -> Option<usize> {
    let text = field(bytes);
    usize::from_str_radix(text.trim(), 8).ok()
}

/// `path` out of records such as `30 path=some/long/name\n`.
fn pax_path(content: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(content);
    text.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path=").map(str::to_string))
}

fn safe_path(name: &str) -> Option<String> {
    let name = name.replace('\\', "/");
    if name.starts_with('/') || name.contains(':') {
        return None;
    }
    let clean = crate::funcs::clean_path(&name);
    (!clean.starts_with("..")).then_some(clean)
}
