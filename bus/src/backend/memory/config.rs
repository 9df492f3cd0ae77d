//! What a `memory://` URL says.

use crate::contract::StoreUrl;
use crate::error::Result;

/// Which store is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) name: String,
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self> {
        url.allow_params(&[])?;
        Ok(Config { name: url.rest().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_url_is_the_name() {
        let config = |text| StoreUrl::parse(text).and_then(|url| Config::from_url(&url));
        assert_eq!(config("memory://").map(|c| c.name).ok().as_deref(), Some(""));
        assert_eq!(config("memory://orders").map(|c| c.name).ok().as_deref(), Some("orders"));
        assert!(config("memory://orders?size=3").is_err());
    }
}
