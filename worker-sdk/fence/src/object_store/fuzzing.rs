//! What a fuzzer reaches of this folder.

use bytes::Bytes;

use super::manifest::{Content, Manifest};

/// Reads a manifest and what it says of its data.
pub(crate) fn manifest(bytes: &Bytes) {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    assert_eq!(Manifest::decode(&manifest.encode()).as_ref(), Ok(&manifest));
    let Some(checkpoint) = &manifest.record.checkpoint else {
        return;
    };
    if let Ok(content) = Content::decode(&checkpoint.data) {
        if let Content::Parts(parts) = &content {
            let _count = parts.count();
        }
        assert_eq!(Content::decode(&content.encode()), Ok(content));
    }
}
