//! The statements: texts in `sql/`, with the types of their parameters.

use tokio_postgres::types::Type;

use super::config::Schema;

/// A statement, before the schema's name is put in.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) name: &'static str,
    text: &'static str,
    pub(super) types: &'static [Type],
}

impl Sql {
    /// The text for a schema.
    pub(super) fn text(&self, schema: &Schema) -> String {
        in_schema(self.text, schema)
    }
}

/// Puts the schema's name where it belongs.
pub(super) fn in_schema(text: &str, schema: &Schema) -> String {
    text.replace("{schema}", schema.as_str())
}

macro_rules! statements {
    ($($name:ident = $file:literal [$($type:ident),*];)*) => {
        $(pub(super) static $name: Sql = Sql {
            name: $file,
            text: include_str!(concat!("sql/", $file, ".sql")),
            types: &[$(Type::$type),*],
        };)*
    };
}

statements! {
    TURN = "turn" [INT8, INT8_ARRAY, INT8_ARRAY, INT8, INT8, INT8, INT8, INT8, INT8_ARRAY, INT8];
    STRICT_OPEN = "strict_open" [INT8];
    STRICT_LOCK = "strict_lock" [INT8];
    STRICT_CLAIM = "strict_claim" [INT8, INT8, INT8, INT8, INT8, INT8_ARRAY];
    FLOOR = "floor" [INT8, INT8, INT8];
    WAKE_DUE = "wake_due" [INT8, INT8];
    GLANCE = "glance" [INT8, INT8, BOOL, TEXT];
    POLL = "poll" [INT8_ARRAY, INT8_ARRAY];
    SETTLE = "settle" [INT8, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8];
    EXTEND = "extend" [INT8, INT8_ARRAY, INT8_ARRAY, INT8, INT8];
    RECORD_ALONE = "record_alone" [INT8, INT8, INT8, INT8];
    CLOCK = "clock" [];
    ENDPOINT_FIND = "endpoint_find" [TEXT];
    ENDPOINT_MAKE = "endpoint_make" [TEXT_ARRAY, TEXT_ARRAY];
    ENDPOINT_NAMES = "endpoint_names" [];
    SEND_TO_QUEUES = "send_to_queues" [TEXT_ARRAY, UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY];
    SEND = "send" [
        TEXT_ARRAY, BOOL_ARRAY, UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY,
        BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY
    ];
    CANCEL = "cancel" [INT8_ARRAY, TEXT, INT8];
    FENCE_RAISE = "fence_raise" [TEXT, TEXT, INT8, INT8];
    FENCE_ROW = "fence_row" [TEXT];
    FENCE_BIND = "fence_bind" [INT8, INT8, INT8];
    DEPTH = "depth" [TEXT];
    DEAD_PAGE = "dead_page" [TEXT, UUID, INT8];
    DEAD_PUT_BACK = "dead_put_back" [TEXT, UUID_ARRAY];
    DEAD_DROP = "dead_drop" [TEXT, UUID_ARRAY];
    READER_PUT = "reader_put" [TEXT_ARRAY, INT8_ARRAY];
    READER_LIST = "reader_list" [];
    SWEEP = "sweep" [INT8];
    SUBSCRIPTION_LOCK = "subscription_lock" [TEXT];
    SUBSCRIPTION_DROP = "subscription_drop" [TEXT, INT8];
    DROPPED_EMPTY = "dropped_empty" [INT8, INT8];
    NOTIFY = "notify" [TEXT, TEXT];
    DURABILITY = "durability" [];
    STORE_EXISTS = "store_exists" [];
    STORE_FIND = "store_find" [];
    LOCK_FIND = "lock_find" [TEXT];
    LOCK_LIST = "lock_list" [TEXT];
    LOCK_MAKE = "lock_make" [TEXT, UUID, INT8, INT8];
    LOCK_TAKE = "lock_take" [TEXT, UUID, INT8, UUID, INT8, INT8, BOOL];
    LOCK_RENEW = "lock_renew" [TEXT, UUID, INT8, INT8, BOOL];
    LOCK_NOTE = "lock_note" [TEXT, UUID, INT8, BYTEA];
    LOCK_RELEASE = "lock_release" [TEXT, UUID, INT8, TEXT, TEXT];
    LOCK_GIVE_UP = "lock_give_up" [TEXT, UUID];
}
