//! A look at a log's directory, as JSON. For `#[serde(with)]`.

use std::path::PathBuf;

use device::Durability;
use log::Look;
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
    streams: Vec<(String, u64)>,
}

pub fn serialize<S: Serializer>(look: &Option<Look>, to: S) -> Result<S::Ok, S::Error> {
    let plain = look.clone().map(|look| Plain {
        uuid: look.uuid,
        owner: look.owner,
        socket: look.socket,
        durability: look.durability.name().into(),
        nvram: look.nvram,
        pool_bytes: look.pool_bytes,
        streams: look.streams,
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
        streams: plain.streams,
    }))
}
