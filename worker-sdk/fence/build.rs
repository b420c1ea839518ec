//! Compiles the messages of the etcd adapter without a system `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "etcd")]
    {
        println!("cargo::rerun-if-changed=src/etcd/etcd.proto");
        let descriptors = protox::compile(["etcd.proto"], ["src/etcd"])?;
        tonic_prost_build::configure()
            .bytes(".")
            .build_server(false)
            .compile_fds(descriptors)?;
    }
    // Without the feature nothing is compiled, whatever changes.
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}
