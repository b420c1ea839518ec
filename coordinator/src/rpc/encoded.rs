//! Messages that were encoded once for all who are sent them, and the codec that copies them.

use std::marker::PhantomData;

use bytes::{BufMut as _, Bytes};
use futures::stream::BoxStream;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Encoded messages.
pub(super) type EncodedStream = BoxStream<'static, Result<Bytes, Status>>;

/// Decodes requests; copies answers, which are encoded already.
pub(super) struct CopyCodec<T>(PhantomData<T>);

impl<T> CopyCodec<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: prost::Message + Default + 'static> Codec for CopyCodec<T> {
    type Encode = Bytes;
    type Decode = T;
    type Encoder = CopyEncoder;
    type Decoder = RequestDecoder<T>;

    fn encoder(&mut self) -> CopyEncoder {
        CopyEncoder
    }

    fn decoder(&mut self) -> RequestDecoder<T> {
        RequestDecoder(PhantomData)
    }
}

pub(super) struct CopyEncoder;

impl Encoder for CopyEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

pub(super) struct RequestDecoder<T>(PhantomData<T>);

impl<T: prost::Message + Default> Decoder for RequestDecoder<T> {
    type Item = T;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<T>, Status> {
        T::decode(from)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
