//! Encoding of records and commands: CBOR with numbered fields.
//!
//! Numbers, not names or positions, identify fields, so the format can only grow: a new field takes
//! the next number and is optional, a removed number is never used again. No optional field may be an
//! enum: the derive reads an unknown variant of one as none, where it must be an error. Values of
//! types that know nothing of CBOR are encoded by the modules below, named in `#[cbor(with = "..")]`.

use minicbor::decode::{Decoder, Error as DecodeError};
use minicbor::encode::{Encoder, Error as EncodeError, Write};

/// Encodes a value that only memory could fail.
pub(crate) fn to_vec<T: minicbor::Encode<()>>(value: &T) -> Vec<u8> {
    match minicbor::to_vec(value) {
        Ok(bytes) => bytes,
        // Writing to a vector has no error, and no encoder above makes one of its own.
        Err(error) => unreachable!("encoding to memory: {error}"),
    }
}

/// Decodes a value that takes up all of the bytes.
pub(crate) fn from_slice<'b, T: minicbor::Decode<'b, ()>>(
    bytes: &'b [u8],
) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode()?;
    if decoder.position() != bytes.len() {
        return Err(DecodeError::message("bytes follow the value").at(decoder.position()));
    }
    Ok(value)
}

/// A 128-bit number as 16 big-endian bytes.
pub(crate) mod wide {
    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &u128,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.bytes(&value.to_be_bytes())?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<u128, DecodeError> {
        let bytes = d
            .bytes()?
            .try_into()
            .map_err(|_| DecodeError::message("not 16 bytes"))?;
        Ok(u128::from_be_bytes(bytes))
    }
}

/// A shared text.
pub(crate) mod shared_str {
    use std::sync::Arc;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Arc<str>,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.str(value)?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<Arc<str>, DecodeError> {
        d.str().map(Arc::from)
    }
}

/// A duration as whole milliseconds: every duration of a policy or session is set in milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Duration,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))?
            .ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<Duration, DecodeError> {
        d.u64().map(Duration::from_millis)
    }
}

/// A group name as text, checked again when read.
pub(crate) mod group_name {
    use tenure_fence::GroupName;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &GroupName,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.str(value.as_str())?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<GroupName, DecodeError> {
        GroupName::try_from(d.str()?).map_err(DecodeError::custom)
    }
}

/// An epoch as its number.
pub(crate) mod epoch {
    use tenure_fence::Epoch;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Epoch,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.u64(value.get())?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<Epoch, DecodeError> {
        Epoch::try_from(d.u64()?).map_err(|_| DecodeError::message("not an epoch"))
    }
}

/// An epoch as its number, none as 0, which is no epoch.
pub(crate) mod epoch_option {
    use tenure_fence::Epoch;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Option<Epoch>,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.u64(value.map_or(0, Epoch::get))?.ok()
    }

    pub(crate) fn decode<Ctx>(
        d: &mut Decoder<'_>,
        _: &mut Ctx,
    ) -> Result<Option<Epoch>, DecodeError> {
        match d.u64()? {
            0 => Ok(None),
            number => Epoch::try_from(number)
                .map(Some)
                .map_err(|_| DecodeError::message("not an epoch")),
        }
    }

    pub(crate) fn is_nil(value: &Option<Epoch>) -> bool {
        value.is_none()
    }

    /// What a missing field means.
    pub(crate) fn nil() -> Option<Option<Epoch>> {
        Some(None)
    }
}

/// An owner as cluster and session number.
pub(crate) mod owner {
    use tenure_fence::Owner;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Owner,
        e: &mut Encoder<W>,
        ctx: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(2)?;
        wide::encode(&value.cluster, e, ctx)?;
        e.u64(value.session)?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, ctx: &mut Ctx) -> Result<Owner, DecodeError> {
        if d.array()? != Some(2) {
            return Err(DecodeError::message("an owner is an array of two"));
        }
        Ok(Owner {
            cluster: wide::decode(d, ctx)?,
            session: d.u64()?,
        })
    }
}

/// A sequence as its number.
pub(crate) mod sequence {
    use tenure_fence::Sequence;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Sequence,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.u64(value.get())?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<Sequence, DecodeError> {
        Sequence::try_from(d.u64()?).map_err(|_| DecodeError::message("not a sequence"))
    }
}

/// A write id as 16 bytes.
pub(crate) mod write_id {
    use tenure_fence::WriteId;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &WriteId,
        e: &mut Encoder<W>,
        ctx: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        wide::encode(&value.get(), e, ctx)
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, ctx: &mut Ctx) -> Result<WriteId, DecodeError> {
        wide::decode(d, ctx).map(WriteId::new)
    }
}

/// Checkpoint bytes.
pub(crate) mod data {
    use bytes::Bytes;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Bytes,
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.bytes(value)?.ok()
    }

    pub(crate) fn decode<Ctx>(d: &mut Decoder<'_>, _: &mut Ctx) -> Result<Bytes, DecodeError> {
        d.bytes().map(Bytes::copy_from_slice)
    }
}

/// An optional duration as whole milliseconds.
pub(crate) mod millis_option {
    use std::time::Duration;

    use super::*;

    pub(crate) fn encode<Ctx, W: Write>(
        value: &Option<Duration>,
        e: &mut Encoder<W>,
        ctx: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        match value {
            Some(value) => millis::encode(value, e, ctx),
            None => e.null()?.ok(),
        }
    }

    pub(crate) fn decode<Ctx>(
        d: &mut Decoder<'_>,
        ctx: &mut Ctx,
    ) -> Result<Option<Duration>, DecodeError> {
        if d.datatype()? == minicbor::data::Type::Null {
            d.null()?;
            return Ok(None);
        }
        millis::decode(d, ctx).map(Some)
    }

    pub(crate) fn is_nil(value: &Option<Duration>) -> bool {
        value.is_none()
    }

    /// What a missing field means.
    pub(crate) fn nil() -> Option<Option<Duration>> {
        Some(None)
    }
}
