//! The blobs of one container: each call with a deadline, tried again where that may help.
//!
//! All requests of this module may be made twice: each is conditional on what the first one changed, or does the same
//! again.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::time::SystemTime;

use azure_core::http::headers::HeaderName;
use azure_core::http::{Etag, RequestContent, Response};
use azure_core::time::{OffsetDateTime, parse_rfc7231};
use azure_storage_blob::models::{
    BlobClientAcquireLeaseOptions, BlobClientDownloadOptions, BlobClientGetPropertiesResultHeaders,
    BlobClientReleaseLeaseOptions, BlobClientSetMetadataOptions, BlobClientUploadOptions,
    BlobContainerClientListBlobsOptions, BlobItem, LeaseState, ListBlobsIncludeItem,
};
use azure_storage_blob::{BlobClient, BlobContainerClient, BlobContainerClientOptions};
use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::time::Instant;
use uuid::Uuid;

use super::call::{Answer, LONGEST_PAUSE, call};
use super::credential::Account;
use super::error::{Advice, Failure, error};
use super::http;
use super::name::OF_NO_LOCK;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};

/// A blob goes and comes in one piece, whatever its size.
const ONE_PIECE: usize = 256 << 20;

/// A container, and how to reach it.
pub(super) struct Container {
    client: BlobContainerClient,
    advice: Advice,
    /// Host and path, without credentials.
    shown: String,
}

impl Container {
    /// Prepares everything, and connects to nothing. `permitted` says what credentials have to permit.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there can be no TLS, or the address is none for the client.
    pub(super) fn new(account: &Account, name: &str, permitted: &'static str) -> Result<Self> {
        let mut url = account.endpoint.container(name);
        let client_options = http::options(account, &mut url)?;
        let options = BlobContainerClientOptions { client_options, ..Default::default() };
        let client = BlobContainerClient::new(url, None, Some(options)).map_err(|_| {
            error(ErrorKind::Config, "the container's address is none that Azure's client takes")
        })?;
        Ok(Container {
            client,
            advice: Advice { accepted: account.credential.advice(), permitted },
            shown: format!("{}{name}", account.endpoint),
        })
    }

    /// A blob by its name.
    pub(super) fn blob(&self, name: &str) -> Blob<'_> {
        Blob { client: self.client.blob_client(name), container: self }
    }

    /// Asks whether the container is there.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not.
    pub(super) async fn find(&self, deadline: Instant) -> Result<()> {
        // Asks for a blob that cannot be there: credentials for what is in a container may not ask for the container.
        match self.blob(OF_NO_LOCK).read(deadline).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_missing_container() => Err(error(
                ErrorKind::NotFound,
                "there is no such container: check its name and the account's, or start a host, which makes it",
            )
            .with("container", self)),
            Err(failure) if failure.is_missing() => Ok(()),
            Err(failure) => Err(self.describe(failure)),
        }
    }

    /// Makes the container if it is not there.
    pub(super) async fn ensure(&self, deadline: Instant) -> Result<()> {
        match self.find(deadline).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.create(deadline).await.map_err(|failure| self.describe(failure))?;
                tracing::info!(target: "bus::azure_storage", event = "container.new", container = %self, "a new container was made");
                Ok(())
            }
            found => found,
        }
    }

    /// Makes the container; that another has just done so is no error.
    pub(super) async fn create(&self, deadline: Instant) -> Answer<()> {
        loop {
            match call(deadline, || self.client.create(None)).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.is_there() => return Ok(()),
                Err(failure) if failure.is_being_deleted() && Instant::now() + LONGEST_PAUSE < deadline => {
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// All blobs whose names begin so.
    pub(super) async fn list(&self, beginning: &str, deadline: Instant) -> Answer<Vec<Listed>> {
        let items = call(deadline, || async {
            let options = BlobContainerClientListBlobsOptions {
                // Not all sign a parameter without a value alike.
                prefix: (!beginning.is_empty()).then(|| beginning.to_owned()),
                include: Some(vec![ListBlobsIncludeItem::Metadata]),
                ..Default::default()
            };
            self.client.list_blobs(Some(options))?.try_collect::<Vec<_>>().await
        });
        Ok(items.await?.into_iter().filter_map(Listed::from_item).collect())
    }

    /// A failure as an error, for people.
    pub(super) fn describe(&self, failure: Failure) -> Error {
        failure.into_error(self.advice).with("container", self)
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// One blob of a container.
pub(super) struct Blob<'c> {
    client: BlobClient,
    container: &'c Container,
}

/// A blob's properties as they were at one moment.
pub(super) struct Properties {
    pub(super) metadata: HashMap<String, String>,
    /// Changes with every write.
    pub(super) version: Option<Etag>,
    /// The service's clock.
    pub(super) date: Timestamp,
    pub(super) is_leased: bool,
}

/// A blob in a list.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) metadata: HashMap<String, String>,
    pub(super) is_leased: bool,
}

impl Blob<'_> {
    /// Takes a lease of so many seconds under this id, or extends the one that has it.
    pub(super) async fn acquire(&self, seconds: i32, lease: Uuid, deadline: Instant) -> Answer<()> {
        let options = || BlobClientAcquireLeaseOptions {
            proposed_lease_id: Some(lease.to_string()),
            ..Default::default()
        };
        match call(deadline, || self.client.acquire_lease(seconds, Some(options()))).await {
            Ok(_) => Ok(()),
            // The client knows of one success only: that of a lease which is new.
            Err(failure) if failure.is_success() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the lease last for as long again.
    pub(super) async fn renew(&self, lease: Uuid, deadline: Instant) -> Answer<()> {
        call(deadline, || self.client.renew_lease(lease.to_string(), None)).await.map(drop)
    }

    /// Gives the lease up.
    pub(super) async fn release(&self, lease: Uuid, deadline: Instant) -> Answer<()> {
        call(deadline, || self.client.release_lease(lease.to_string(), None)).await.map(drop)
    }

    /// Gives the lease up, if nobody has written to the blob since it was read in that version.
    pub(super) async fn release_unchanged(
        &self,
        lease: Uuid,
        version: &Etag,
        deadline: Instant,
    ) -> Answer<()> {
        let options =
            || BlobClientReleaseLeaseOptions { if_match: Some(version.clone()), ..Default::default() };
        call(deadline, || self.client.release_lease(lease.to_string(), Some(options()))).await.map(drop)
    }

    /// Gives the lease another id, and not another end.
    pub(super) async fn change_lease(&self, from: Uuid, to: Uuid, deadline: Instant) -> Answer<()> {
        call(deadline, || self.client.change_lease(from.to_string(), to.to_string(), None)).await.map(drop)
    }

    /// Makes the blob, empty, and the container first if it is not there. That it is there already is no error.
    pub(super) async fn create(&self, deadline: Instant) -> Answer<()> {
        match self.upload(deadline).await {
            Err(failure) if failure.is_missing_container() => {
                self.container.create(deadline).await?;
                self.upload(deadline).await
            }
            answer => answer,
        }
    }

    async fn upload(&self, deadline: Instant) -> Answer<()> {
        let upload = || {
            let only_if_missing = BlobClientUploadOptions::default().if_not_exists();
            self.client.upload(RequestContent::from(Vec::new()), Some(only_if_missing))
        };
        match call(deadline, upload).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_there() => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Puts content into it, whatever was there, and makes the container first if it is not there.
    pub(super) async fn fill(&self, content: &Bytes, deadline: Instant) -> Answer<()> {
        let options = || BlobClientUploadOptions {
            partition_size: NonZero::new(ONE_PIECE as u64),
            ..Default::default()
        };
        let upload = || self.client.upload(RequestContent::from(content.to_vec()), Some(options()));
        match call(deadline, upload).await {
            Err(failure) if failure.is_missing_container() => {
                self.container.create(deadline).await?;
                call(deadline, upload).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// All of its content.
    pub(super) async fn content(&self, deadline: Instant) -> Answer<Bytes> {
        call(deadline, || async {
            let options =
                BlobClientDownloadOptions { partition_size: NonZero::new(ONE_PIECE), ..Default::default() };
            self.client.download(Some(options)).await?.body.collect().await
        })
        .await
    }

    /// Deletes it; that it is not there is as good.
    pub(super) async fn delete(&self, deadline: Instant) -> Answer<()> {
        match call(deadline, || self.client.delete(None)).await {
            Err(failure) if !failure.is_missing() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Reads what is known of it.
    pub(super) async fn read(&self, deadline: Instant) -> Answer<Properties> {
        let answer = call(deadline, || self.client.get_properties(None)).await?;
        Ok(Properties {
            metadata: answer.metadata()?,
            version: answer.etag()?,
            date: date_of(&answer)?,
            is_leased: answer.lease_state()?.is_some_and(is_leased),
        })
    }

    /// Replaces its metadata, under the lease, if nobody has written to it since it was read in that version.
    pub(super) async fn write(
        &self,
        metadata: &HashMap<String, String>,
        lease: Uuid,
        version: Option<&Etag>,
        deadline: Instant,
    ) -> Answer<()> {
        let options = || BlobClientSetMetadataOptions {
            lease_id: Some(lease.to_string()),
            if_match: version.cloned(),
            ..Default::default()
        };
        call(deadline, || self.client.set_metadata(metadata, Some(options()))).await.map(drop)
    }
}

impl Listed {
    fn from_item(item: BlobItem) -> Option<Self> {
        Some(Listed {
            name: item.name?,
            metadata: item.metadata.and_then(|metadata| metadata.values).unwrap_or_default(),
            is_leased: item.properties.and_then(|properties| properties.lease_state).is_some_and(is_leased),
        })
    }
}

/// A lease that is being broken still keeps others out.
fn is_leased(state: LeaseState) -> bool {
    matches!(state, LeaseState::Leased | LeaseState::Breaking)
}

fn date_of<T, F>(answer: &Response<T, F>) -> azure_core::Result<Timestamp> {
    const DATE: HeaderName = HeaderName::from_static("date");
    let date: OffsetDateTime = parse_rfc7231(answer.headers().get_str(&DATE)?)?;
    Ok(Timestamp::from(SystemTime::from(date)))
}
