//! Lock ids as names of files.
//!
//! `queue/rebuild-cache` is the file `queue.rebuild-cache.lock`: flat, so that one watch sees all of them; and of
//! characters that every file system takes, without capitals, which some take for small letters. The record within
//! holds the id, so that names need not be read back.

use super::record::digest;
use crate::contract::LockId;
use crate::escape::escape;

/// What all locks' files end with.
const END: &str = ".lock";
/// The longest name without its end: file systems take 255 bytes.
const LONGEST: usize = 200;
/// How much of a longer one is kept.
const KEPT: usize = 160;

/// The name of a lock's file.
pub(super) fn of_lock(id: &LockId) -> String {
    let keep = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_/".contains(&byte);
    let mut name = escape(id.as_str().as_bytes(), keep).replace('/', ".");
    // A name that began with a dot would be hidden.
    if name.starts_with('.') {
        name.replace_range(..1, "~2F");
    } else if name.is_empty() {
        name.push('~');
    }
    if name.len() > LONGEST {
        name.truncate(KEPT);
        name += &format!("~~{:032x}", digest(id.as_str().as_bytes()));
    }
    name + END
}

/// Whether a file of this name may be a lock's.
pub(super) fn is_lock(name: &str) -> bool {
    name.ends_with(END) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_name_of_its_own() {
        let long = "a".repeat(300);
        let ids = [
            "queue/rebuild-cache",
            "shop/billing/subscription/order-placed/send-receipt",
            "a",
            "a/",
            "/a",
            "/",
            "",
            "a.b",
            "a/b",
            "a~2Fb",
            "A",
            "å",
            "a b",
            "a\u{0}",
            "..",
            ".",
            "~",
            "日本",
            &long,
            &format!("{long}b"),
            &format!("{}b", "/".repeat(299)),
        ];
        let mut names: Vec<_> = ids.iter().map(|id| of_lock(&LockId::from(*id))).collect();
        assert_eq!(names[0], "queue.rebuild-cache.lock", "golden: running programs agree on it");
        for name in &names {
            assert!(is_lock(name) && name.len() <= 255, "{name}");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            assert!(name.bytes().all(is_plain), "{name}");
        }
        // Where capitals and small letters are the same.
        names.iter_mut().for_each(|name| name.make_ascii_lowercase());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ids.len());
    }
}
