SELECT space FROM tokens WHERE digest = $1
