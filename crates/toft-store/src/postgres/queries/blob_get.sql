SELECT body FROM blobs WHERE space = $1 AND id = $2
