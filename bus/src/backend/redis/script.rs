//! The scripts: each is one change of the store's state, done whole or not at all.

use std::sync::LazyLock;

/// A script as the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Script { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }
}

/// A call of a script.
#[derive(Debug)]
pub(super) struct Invocation {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Invocation {
    /// Of `script` on `keys`, without arguments.
    pub(super) fn new(script: &'static Script, keys: Vec<String>) -> Self {
        Invocation { script, keys, arguments: Vec::new() }
    }

    /// Adds an argument: a number or a text.
    pub(super) fn add(&mut self, argument: impl ToString) {
        self.add_bytes(argument.to_string().into_bytes());
    }

    /// The same, for the beginning of a call.
    pub(super) fn with(mut self, argument: impl ToString) -> Self {
        self.add(argument);
        self
    }

    /// Adds bytes as they are.
    pub(super) fn add_bytes(&mut self, argument: Vec<u8>) {
        self.arguments.push(argument);
    }

    /// The number of a key, which is added if it is not there: counted from 1, as the scripts do.
    pub(super) fn key(&mut self, key: String) -> usize {
        match self.keys.iter().position(|known| *known == key) {
            Some(at) => at + 1,
            None => {
                self.keys.push(key);
                self.keys.len()
            }
        }
    }

    /// As a command for a server that knows the script.
    pub(super) fn by_hash(&self) -> redis::Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// As a command for a server that does not know the script, and does then.
    pub(super) fn by_source(&self) -> redis::Cmd {
        self.command("EVAL", self.script.source)
    }

    fn command(&self, name: &str, script: &str) -> redis::Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys);
        for argument in &self.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

macro_rules! scripts {
    ($($name:ident = $($part:literal),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("lua/", $part, ".lua"))),+)));)*
    };
}

scripts! {
    PREPARE = "endpoint", "prepare";
    BEGIN = "endpoint", "began", "begin";
    SEND = "endpoint", "began", "outbox", "send";
    CLAIM = "endpoint", "held", "claim";
    SETTLE = "endpoint", "held", "outbox", "settle";
    EXTEND = "endpoint", "held", "extend";
    ALONE = "endpoint", "held", "alone";
    CANCEL = "endpoint", "cancel";
    RAISE = "endpoint", "raise";
    FENCE = "endpoint", "fence";
    DEPTH = "endpoint", "held", "depth";
    DEAD_PAGE = "endpoint", "dead_page";
    TAKE_OUT = "endpoint", "take_out";
    ATTEND = "endpoint", "attend";
    READING = "endpoint", "ages", "reading";
    SWEEP = "endpoint", "ages", "aside", "sweep";
    DROP = "endpoint", "aside", "drop";
    CLEAR = "endpoint", "aside", "clear";
    LOCK_TAKE = "lock/record", "lock/take";
    LOCK_RENEW = "lock/record", "lock/renew";
    LOCK_FINISH = "lock/record", "lock/finish";
    LOCK_NOTE = "lock/record", "lock/note";
    LOCK_SHOW = "lock/record", "lock/show";
}
