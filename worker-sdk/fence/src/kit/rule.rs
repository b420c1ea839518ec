//! The rules a store is held to, and where each comes from.

/// One rule of the contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// What holds.
    pub(super) says: &'static str,
    /// Where it comes from: sections, promises and scenarios of the design.
    pub(super) from: &'static str,
}

pub(super) const STALE: Rule = Rule {
    says: "a store accepts nothing of an epoch below one it has sealed, and a refusal changes nothing",
    from: "architecture §5 rules 1 and 2, promise P2, scenario 1",
};

pub(super) const EAGER_SEAL: Rule = Rule {
    says: "a seal alone fences the old owner, before the new one has written anything",
    from: "architecture §5 rule 1, scenario 2 (seen in BookKeeper and SlateDB)",
};

pub(super) const SEAL_BEFORE_READ: Rule = Rule {
    says: "what a seal returns is the last accepted write of all earlier epochs, and none lands after",
    from: "architecture §5 rule 1, promise P3, scenario 3 (SlateDB #1682)",
};

pub(super) const SEAL_AGAIN: Rule = Rule {
    says: "the same owner may seal its epoch again; that changes nothing",
    from: "architecture §5 rule 1, scenario 5",
};

pub(super) const ONE_OWNER: Rule = Rule {
    says: "one epoch has one owner: another one's seal, write and deletion are an EpochConflict",
    from: "architecture §5 rule 1, scenario 5 (seen in Neon and HDFS QJM)",
};

pub(super) const SEALED_FIRST: Rule = Rule {
    says: "nothing but a seal raises a fence: a write above the fence is NotSealed",
    from: "architecture §5 rule 2",
};

pub(super) const ATOMIC: Rule = Rule {
    says: "the check and the write are one atomic step in the store",
    from: "architecture §5 rule 2",
};

pub(super) const ZOMBIE: Rule = Rule {
    says: "a worker that wakes up late cannot put an older checkpoint over a newer one",
    from: "architecture §5 rule 2, scenario 8 (Kinesis client #108)",
};

pub(super) const FINAL: Rule = Rule {
    says: "a fenced token stays fenced for ever; the same owner with a new epoch writes normally",
    from: "architecture §5 rule 4, scenario 9 (snowplow #649)",
};

pub(super) const RETRY: Rule = Rule {
    says: "the retry of a write that landed succeeds and leaves one version",
    from: "architecture §5 rule 3, scenario 6 (Hudi #14373)",
};

pub(super) const ONE_CONTENT: Rule = Rule {
    says: "a sequence rises within an epoch and belongs to one content for ever",
    from: "architecture §5 rule 3, scenario 38",
};

pub(super) const AFRESH: Rule = Rule {
    says: "a new epoch starts its sequences afresh",
    from: "architecture §5 rule 3",
};

pub(super) const UNKNOWN: Rule = Rule {
    says: "after an unknown outcome other data takes a higher sequence, and the late write loses",
    from: "architecture §5 rule 3, scenario 38",
};

pub(super) const DELETION_IN_SEQUENCE: Rule = Rule {
    says: "a deletion is a write of nothing: it takes its sequence, and a late one removes nothing",
    from: "architecture §5 rule 3, scenario 38",
};

pub(super) const FENCE_STAYS: Rule = Rule {
    says: "the fence and the used sequences outlive the data",
    from: "architecture §5 rule 5",
};

pub(super) const BATCH: Rule = Rule {
    says: "many seals at once answer each token in its place, as single seals would",
    from: "architecture §5, CheckpointStore::seal_many",
};

pub(super) const UNFENCED_READ: Rule = Rule {
    says: "a read returns the latest checkpoint and changes nothing",
    from: "architecture §5 rule 6",
};

pub(super) const VALUES: Rule = Rule {
    says: "a value of up to the limit comes back as it was written, a larger one is TooLarge",
    from: "architecture §5 rule 4",
};

pub(super) const INDEPENDENT: Rule = Rule {
    says: "each resource has a fence, sequences and data of its own",
    from: "architecture §1 (resource)",
};

pub(super) const DURABLE: Rule = Rule {
    says: "what was acknowledged, fences first of all, is there after a restart of the store",
    from: "architecture §5 rules 1 and 5",
};

pub(super) const LINEAR: Rule = Rule {
    says: "calls that overlap have the answers of calls made one after the other",
    from: "architecture §5 rule 2 (linearizability: Herlihy and Wing, TOPLAS 1990)",
};

pub(super) const PROBE: Rule = Rule {
    says: "a store that can fence passes its own probe",
    from: "architecture §5 rule 4",
};

pub(super) const SOURCE: Rule = Rule {
    says: "the source of tokens gives each tenure a higher epoch and the owner that was asked for",
    from: "kit::Harness::next_tenure; this is a fault of the harness, not of the store",
};
