//! Objects: commits, logs and ledgers of all machines, in a directory or in S3.

pub(crate) mod connector;

use std::{
    fs, io,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::{Body, Bytes};
use futures_util::TryStreamExt as _;
use object_store::{
    ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, aws::AmazonS3Builder, local::LocalFileSystem,
    path::Path as ObjectPath, prefix::PrefixStore,
};

use connector::UreqConnector;

/// How an address of S3 begins: `s3://BUCKET/PREFIX`.
const S3: &str = "s3://";

/// Where a server keeps objects.
#[derive(Clone)]
pub(crate) struct Objects(Arc<dyn ObjectStore>);

impl Objects {
    /// A directory, which is made if it is not there, or `s3://BUCKET/PREFIX` with the credentials of the environment.
    pub(crate) fn open(location: &str) -> io::Result<Self> {
        let Some(rest) = location.strip_prefix(S3) else {
            make_private(Path::new(location))?;
            let files = LocalFileSystem::new_with_prefix(location).map_err(io::Error::other)?;
            return Ok(Self(Arc::new(files.with_fsync(true))));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let bucket = AmazonS3Builder::from_env().with_bucket_name(bucket).with_http_connector(UreqConnector);
        let bucket = bucket.build().map_err(io::Error::other)?;
        Ok(Self(Arc::new(PrefixStore::new(bucket, prefix))))
    }

    /// Keeps an object. One that is there stays as it is: its name says what it has.
    pub(crate) async fn put(&self, path: &[&str], content: Bytes) -> io::Result<()> {
        self.create(path, content).await.map(drop)
    }

    /// Keeps an object unless there is one; returns whether it does.
    pub(crate) async fn create(&self, path: &[&str], content: Bytes) -> io::Result<bool> {
        match self.0.put_opts(&at(path), PutPayload::from_bytes(content), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes an object that may be gone.
    pub(crate) async fn delete(&self, path: &[&str]) -> io::Result<()> {
        match self.0.delete(&at(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// An object as a stream, and its size, if there is one.
    pub(crate) async fn get(&self, path: &[&str]) -> io::Result<Option<(Body, u64)>> {
        match self.0.get(&at(path)).await {
            Ok(found) => {
                let size = found.meta.size;
                Ok(Some((Body::from_stream(found.into_stream()), size)))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The names of the objects directly below a path, in order.
    pub(crate) async fn list(&self, path: &[&str]) -> io::Result<Vec<String>> {
        Ok(self.list_sizes(path).await?.into_iter().map(|(name, _)| name).collect())
    }

    /// The same, with the size of each.
    pub(crate) async fn list_sizes(&self, path: &[&str]) -> io::Result<Vec<(String, u64)>> {
        let listed = self.0.list_with_delimiter(Some(&at(path))).await.map_err(failed)?;
        let named =
            listed.objects.into_iter().filter_map(|found| Some((found.location.filename()?.to_owned(), found.size)));
        let mut named: Vec<(String, u64)> = named.collect();
        named.sort();
        Ok(named)
    }

    /// Deletes what is below a path and older than `age`, except objects that `keeps` names.
    pub(crate) async fn forget(&self, path: &[&str], age: Duration, keeps: impl Fn(&str) -> bool) -> io::Result<()> {
        let all: Vec<_> = self.0.list(Some(&at(path))).try_collect().await.map_err(failed)?;
        for found in all {
            let written = SystemTime::from(found.last_modified);
            let old = written.elapsed().is_ok_and(|since| since > age);
            if old && !keeps(found.location.filename().unwrap_or_default()) {
                self.0.delete(&found.location).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The path of an object; what a part has that separates parts is encoded.
fn at(parts: &[&str]) -> ObjectPath {
    ObjectPath::from_iter(parts.iter().copied())
}

fn failed(error: object_store::Error) -> io::Error {
    io::Error::other(error)
}

fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[test]
    fn objects_are_kept_listed_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::open(&dir.path().join("new").display().to_string()).unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            objects.put(&["main", "logs", "a/b", "2"], Bytes::from_static(b"two")).await.unwrap();
            objects.put(&["main", "logs", "a/b", "1"], Bytes::from_static(b"one")).await.unwrap();
            let (found, size) = objects.get(&["main", "logs", "a/b", "2"]).await.unwrap().unwrap();
            assert_eq!(size, 3);
            assert_eq!(to_bytes(found, 10).await.unwrap(), "two");
            assert!(objects.get(&["main", "logs", "a", "b"]).await.unwrap().is_none());
            assert_eq!(objects.list(&["main", "logs", "a/b"]).await.unwrap(), ["1", "2"]);
            assert!(objects.list(&["other", "logs"]).await.unwrap().is_empty());
            objects.forget(&["main", "logs"], Duration::ZERO, |name| name == "1").await.unwrap();
            assert_eq!(objects.list(&["main", "logs", "a/b"]).await.unwrap(), ["1"]);
        });
    }
}
