//! Lock ids as names of blobs, and back.
//!
//! `queue/rebuild-cache` is the blob `queue.rebuild-cache`: flat, so that no lock lies "in" another one's folder where
//! the account has real folders; and of characters that no URL, signature or tool treats in a way of its own.

use super::error::error;
use crate::contract::LockId;
use crate::error::{ErrorKind, Result};
use crate::escape::{escape, unescape};

/// What Azure takes.
const LONGEST: usize = 1024;

/// The name of a blob that no lock has, for asking whether the container is there.
pub(super) const OF_NO_LOCK: &str = "~";

/// The name of a lock's blob.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the id is empty or too long.
pub(super) fn of_lock(id: &LockId) -> Result<String> {
    let name = encode(id.as_str());
    if name.is_empty() || name.len() > LONGEST {
        return Err(error(
            ErrorKind::InvalidInput,
            "a lock's id must be neither empty nor too long for a blob",
        )
        .with("longest", LONGEST)
        .with("lock", id));
    }
    Ok(name)
}

/// The lock whose blob has this name; `None` if it is none of ours.
pub(super) fn lock_of(blob: &str) -> Option<LockId> {
    let id = String::from_utf8(unescape(&blob.replace('.', "/"))?).ok()?;
    (!id.is_empty() && encode(&id) == blob).then(|| LockId::from(id.as_str()))
}

/// With what the names of all locks begin whose ids begin with `prefix`. So may others.
pub(super) fn beginning_of(prefix: &str) -> String {
    // The name's last character may be another one than the same character in the midst of a name.
    encode(prefix.strip_suffix('/').unwrap_or(prefix))
}

fn encode(id: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    // A name should not end with a dot.
    let (inner, last) = id.strip_suffix('/').map_or((id, ""), |inner| (inner, "~2F"));
    escape(inner.as_bytes(), keep).replace('/', ".") + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_name_of_its_own_that_is_read_back() {
        let ids = [
            "queue/rebuild-cache",
            "shop/billing/subscription/order-placed/send-receipt",
            "a",
            "a/",
            "a//",
            "/a",
            "/",
            "a.b",
            "a/b",
            "a~2Fb",
            "a%2Fb",
            "A",
            "å",
            "a b",
            "a\u{0}",
            "..",
            ".",
            "~",
            "a/.",
            "日本",
        ];
        let mut names = Vec::new();
        for id in ids {
            let name = of_lock(&LockId::from(id)).unwrap();
            assert_eq!(lock_of(&name), Some(LockId::from(id)), "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)),
                "{name}"
            );
            assert!(!name.ends_with('.') && name != OF_NO_LOCK, "{name}");
            names.push(name);
        }
        assert_eq!(names[0], "queue.rebuild-cache", "golden: running programs agree on it");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ids.len());
    }

    #[test]
    fn a_prefix_of_an_id_is_one_of_its_name() {
        for (prefix, id) in
            [("queue/", "queue/a"), ("queue/", "queue/"), ("", "a"), ("å", "åb"), ("a/b", "a/b/c")]
        {
            let name = of_lock(&LockId::from(id)).unwrap();
            assert!(name.starts_with(&beginning_of(prefix)), "{prefix} {name}");
        }
    }

    #[test]
    fn what_is_no_lock_of_ours_is_passed_over() {
        for blob in ["", "~", "~2", "~zz", "a~2Fb", "~61", "a b", "a/b", "report.pdf."] {
            assert_eq!(lock_of(blob), None, "{blob}");
        }
    }

    #[test]
    fn an_id_that_fits_into_no_name_is_refused() {
        for id in [String::new(), "a".repeat(1025), "å".repeat(200)] {
            assert_eq!(of_lock(&LockId::from(id.as_str())).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert!(of_lock(&LockId::from("a".repeat(1024).as_str())).is_ok());
    }
}
