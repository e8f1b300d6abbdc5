//! A look at a log's directory, as JSON. For `#[serde(with)]`. The names of the streams are left
//! out: they are beside it ([`super::SeenLog`]).

use std::path::PathBuf;

use device::Durability;
use log::{Look, StreamsFound};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::paths;

/// [`Look`] in plain data.
#[derive(Serialize, Deserialize)]
struct Plain {
    uuid: String,
    owner: u32,
    #[serde(with = "paths::maybe")]
    socket: Option<PathBuf>,
    durability: String,
    #[serde(with = "paths::maybe")]
    nvram: Option<PathBuf>,
    pool_bytes: u64,
    stream_count: usize,
    file_bytes: u64,
}

pub fn serialize<S: Serializer>(look: &Option<Look>, to: S) -> Result<S::Ok, S::Error> {
    let plain = look.clone().map(|look| Plain {
        uuid: look.uuid,
        owner: look.owner,
        socket: look.socket,
        durability: look.durability.name().into(),
        nvram: look.nvram,
        pool_bytes: look.pool_bytes,
        stream_count: look.streams.count,
        file_bytes: look.streams.file_bytes,
    });
    plain.serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Look>, D::Error> {
    let Some(plain) = Option::<Plain>::deserialize(from)? else { return Ok(None) };
    let durability = Durability::from_name(&plain.durability);
    Ok(Some(Look {
        uuid: plain.uuid,
        owner: plain.owner,
        socket: plain.socket,
        durability: durability.ok_or_else(|| D::Error::custom("no durability"))?,
        nvram: plain.nvram,
        pool_bytes: plain.pool_bytes,
        streams: StreamsFound {
            count: plain.stream_count,
            file_bytes: plain.file_bytes,
            named: Vec::new(),
        },
    }))
}
