module github.com/superpool/superpool/hack/tools/logcheck

go 1.26.0

require sigs.k8s.io/logtools v0.9.0

require (
	golang.org/x/exp v0.0.0-20240506185415-9bf2ced13842 // indirect
	golang.org/x/mod v0.29.0 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/tools v0.38.0 // indirect
)
