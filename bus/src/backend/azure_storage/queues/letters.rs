//! Bodies that have no room in a queue: each in a blob of its own, put there before its message is sent and deleted after
//! the message has been settled.

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::error::error;
use super::message::{Stored, Text};
use super::service::{PATIENCE, Service};
use crate::error::{Error, ErrorKind, Result};
use crate::message::MessageId;

/// A message as it is put into a queue.
pub(super) struct Letter {
    pub(super) stored: Stored,
    pub(super) text: String,
    /// The blob that was made for it just now.
    pub(super) blob: Option<String>,
}

impl Service {
    /// Makes a text for a queue of a message, and puts its content into a blob if the text would be longer than this.
    ///
    /// # Errors
    /// As the service's; [`ErrorKind::TooLarge`] if not even what is left has room.
    pub(super) async fn fit(&self, stored: Stored, text: Result<Text>) -> Result<Letter> {
        let content = match text? {
            Text::Inline(text) => return Ok(Letter { stored, text, blob: None }),
            Text::TooLong(content) => content,
        };
        let name = blob_for(stored.id);
        self.bodies
            .blob(&name)
            .fill(&content, Instant::now() + PATIENCE)
            .await
            .map_err(|failure| self.bodies.describe(failure))?;
        let stored = stored.in_blob(name.clone(), &content);
        match stored.text_again() {
            Ok(Text::Inline(text)) => Ok(Letter { stored, text, blob: Some(name) }),
            Ok(Text::TooLong(_)) => {
                self.drop_blob(Some(&name)).await;
                Err(Error::new(
                    ErrorKind::TooLarge,
                    "the message has no room in a queue, even without its body",
                ))
            }
            Err(error) => {
                self.drop_blob(Some(&name)).await;
                Err(error)
            }
        }
    }

    /// The same for another copy of a message, which gets a blob of its own where the first has one: each copy is done, or
    /// dropped, without the other. A blob that is gone stays named.
    ///
    /// # Errors
    /// As of [`fit`](Self::fit).
    pub(super) async fn fit_copy(&self, stored: Stored, largest: usize) -> Result<Letter> {
        let content = match stored.blob() {
            Some(blob) => self.fetch(blob).await?,
            None => None,
        };
        let text = match content {
            Some(content) => Ok(Text::TooLong(content)),
            None => stored.text(largest),
        };
        self.fit(stored, text).await
    }

    /// What lies in a message's blob; `None` if the blob is not there.
    pub(super) async fn fetch(&self, blob: &str) -> Result<Option<Bytes>> {
        match self.bodies.blob(blob).content(Instant::now() + PATIENCE).await {
            Ok(content) => Ok(Some(content)),
            // That says nothing about the body: this host looks in the wrong place, or somebody restores it.
            Err(failure) if failure.is_missing_container() => {
                let message =
                    "there is no container of large bodies: check `blobs` of the address, or restore it";
                Err(error(ErrorKind::Unavailable, message).with("container", &self.bodies))
            }
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(self.bodies.describe(failure)),
        }
    }

    /// Deletes the blob of a message that is no more. If that fails the blob stays, and nothing refers to it.
    pub(super) async fn drop_blob(&self, blob: Option<&str>) {
        let Some(blob) = blob else { return };
        if let Err(failure) = self.bodies.blob(blob).delete(Instant::now() + PATIENCE).await {
            let error = self.bodies.describe(failure);
            tracing::warn!(target: "bus::azure_storage", event = "blob.orphaned", blob, %error, "the blob of a message that is done could not be deleted, and stays until a lifecycle rule removes it");
        }
    }
}

/// A name that no other message's blob has, nor another copy's of the same.
fn blob_for(id: MessageId) -> String {
    format!("{id}-{}", Uuid::new_v4().simple())
}
