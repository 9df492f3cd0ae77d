//! The lock manager: a blob per lock, its lease for who holds it, its metadata for the record.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::Container;
use super::config::Config;
use super::connection_string;
use super::error::error;
use super::leased_blob::LeasedBlob;
use super::name;
use super::record::Record;
use crate::clock::{BootInstant, Clock};
use crate::contract::{
    BoxFuture, Durability, Ended, Grant, Lease, LeaseRange, LockGuarantees, LockId, LockManager, LockRecord,
    OpenOptions, Owner, Reach, Renewal, check_note,
};
use crate::error::{ErrorKind, Result};

/// The leases that Azure gives, and one that suits them.
pub(super) const LEASES: LeaseRange =
    LeaseRange::new(Duration::from_secs(15), Duration::from_secs(60)).with_default(Duration::from_secs(30));

/// Where credentials do not permit what is asked.
const PERMITTED: &str = "the credentials do not permit this: a SAS needs the permissions rcwl for the container and what is in it";

/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for giving back what is held.
const PATIENCE_TO_GIVE_UP: Duration = Duration::from_secs(5);

/// Locks on the leases of Azure's blobs.
///
/// A host makes it from its configuration, `locks = "azblob://…"`. In code it is given to
/// [`HostBuilder::locks`](crate::host::HostBuilder::locks):
///
/// ```
/// use bus::backend::azure_storage::BlobLocks;
///
/// # fn example() -> bus::Result<()> {
/// let locks = BlobLocks::from_connection_string("UseDevelopmentStorage=true", "locks")?;
/// let host = bus::Host::builder().locks(locks);
/// # Ok(()) }
/// ```
///
/// Nothing is connected before the host starts.
pub struct BlobLocks {
    container: Arc<Container>,
    clock: Clock,
    poll: Duration,
    /// Whether the container is made where it is missing.
    create: bool,
}

impl BlobLocks {
    /// Locks in a container of the account that a connection string names.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if either cannot be used, or this system has no certificates.
    pub fn from_connection_string(connection_string: &str, container: &str) -> Result<Self> {
        let account = connection_string::blobs(connection_string)?;
        BlobLocks::open(Config::new(account, container)?, &OpenOptions::default())
    }

    /// Locks in a container whose address has a shared access signature:
    /// `https://account.blob.core.windows.net/container?sv=…&sp=rcwl&sig=…`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is no such address, or this system has no certificates.
    pub fn from_sas_url(url: &str) -> Result<Self> {
        BlobLocks::open(Config::from_sas_url(url)?, &OpenOptions::default())
    }

    /// How often a standby asks; 5 s unless said otherwise. Each question is a request that Azure charges for.
    #[must_use]
    pub fn poll_every(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    pub(super) fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        Ok(BlobLocks {
            container: Arc::new(Container::new(&config.account, &config.container, PERMITTED)?),
            clock: options.clock.clone(),
            poll: config.poll,
            create: options.create,
        })
    }

    async fn take(&self, id: &LockId, lock_lease: Duration, owner: Owner) -> Result<Option<BlobLease>> {
        if !LEASES.contains(lock_lease) {
            return Err(error(ErrorKind::InvalidInput, format!("a lock's lease on Azure is {LEASES}"))
                .with("lock_lease", format!("{lock_lease:?}")));
        }
        let (deadline, asked) = (within(lock_lease / 2), self.clock.now());
        let blob = LeasedBlob::new(&self.container, id, owner)?;
        if !blob.acquire(lock_lease, deadline).await? {
            return Ok(None);
        }
        let Some(fence) = blob.begin(lock_lease, deadline).await? else { return Ok(None) };
        Ok(Some(BlobLease {
            grant: Grant::new(id.clone(), owner, fence, lock_lease),
            blob,
            clock: self.clock.clone(),
            confirmed: Mutex::new(asked),
            is_over: AtomicBool::new(false),
        }))
    }

    async fn read(&self, id: &LockId) -> Result<Option<LockRecord>> {
        let name = name::of_lock(id)?;
        match self.container.blob(&name).read(within(PATIENCE)).await {
            Ok(properties) => {
                let record = Record::read(&properties.metadata).map_err(|error| error.with("blob", name))?;
                Ok(record.map(|record| shown(id.clone(), record, properties.is_leased)))
            }
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(self.container.describe(failure)),
        }
    }

    async fn read_all(&self, prefix: &str) -> Result<Vec<LockRecord>> {
        let listed = self.container.list(&name::beginning_of(prefix), within(PATIENCE)).await;
        let mut records = Vec::new();
        for blob in listed.map_err(|failure| self.container.describe(failure))? {
            let Some(id) = name::lock_of(&blob.name).filter(|id| id.as_str().starts_with(prefix)) else {
                continue;
            };
            // One that somebody else has written into hides none of the others.
            if let Ok(Some(record)) = Record::read(&blob.metadata) {
                records.push(shown(id, record, blob.is_leased));
            }
        }
        Ok(records)
    }
}

/// A record for people. The service does not tell how much is left of a lease, only whether it has run out.
fn shown(id: LockId, record: Record, is_leased: bool) -> LockRecord {
    let mut shown = LockRecord::new(id, record.owner, record.fence, record.lock_lease);
    shown.held_for = is_leased.then_some(record.lock_lease);
    shown.ended = record.ended;
    shown.note = record.note;
    shown
}

/// The end of a call that may take so long.
fn within(time: Duration) -> Instant {
    Instant::now() + time
}

impl fmt::Debug for BlobLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobLocks")
            .field("container", &self.container.to_string())
            .field("poll", &self.poll)
            .finish()
    }
}

impl LockManager for BlobLocks {
    fn guarantees(&self) -> LockGuarantees {
        let authority = format!("azblob:{}", self.container);
        let mut guarantees =
            LockGuarantees::new(authority, Reach::Fleet, "the clock of Azure's storage service");
        guarantees.durability = Durability::Replicated;
        guarantees.poll = self.poll;
        guarantees.leases = LEASES;
        guarantees
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let deadline = within(PATIENCE);
            match self.create {
                true => self.container.ensure(deadline).await,
                false => self.container.find(deadline).await,
            }
        })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let taken = self.take(id, lock_lease, owner).await?;
            Ok(taken.map(|lease| Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            LeasedBlob::new(&self.container, id, owner)?.give_up(within(PATIENCE_TO_GIVE_UP)).await
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(self.read(id))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(self.read_all(prefix))
    }
}

/// A term's hold on a lock.
struct BlobLease {
    grant: Grant,
    blob: LeasedBlob,
    clock: Clock,
    /// The instant before the latest request was sent that the service confirmed.
    confirmed: Mutex<BootInstant>,
    /// It was released here: the next term may be of the same owner, whose lease is not this term's to renew.
    is_over: AtomicBool,
}

impl BlobLease {
    async fn prolong(&self) -> Result<Renewal> {
        if self.is_over.load(Ordering::Acquire) {
            return Ok(Renewal::Lost);
        }
        let (deadline, sent, before) = (self.deadline(), self.clock.now(), *self.confirmed.lock());
        if self.blob.renew(deadline).await? == Renewal::Lost {
            return Ok(Renewal::Lost);
        }
        // A lease that had run out is renewed as well, if nobody else has taken it. In time to be sure that this was
        // not the case, the answer is enough; later, only the record tells.
        let in_time = self.clock.now().since(before) <= self.grant.lock_lease / 2;
        if !in_time && !self.blob.is_running(self.grant.fence, deadline).await? {
            return Ok(Renewal::Lost);
        }
        let mut confirmed = self.confirmed.lock();
        *confirmed = sent.max(*confirmed);
        Ok(Renewal::Held)
    }

    /// The end of a call: when it is over, the holder doubts, and later an answer is of no use.
    fn deadline(&self) -> Instant {
        within(self.grant.lock_lease / 2)
    }
}

impl Lease for BlobLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(self.prolong())
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            self.blob.note(self.grant.fence, &note, self.deadline()).await
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.is_over.store(true, Ordering::Release);
            self.blob.end(self.grant.fence, &ended, self.deadline()).await
        })
    }
}
