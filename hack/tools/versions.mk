# The versions of every tool that is built into bin/, in one place with go.mod beside it: go.mod pins what is built
# from the Kubernetes and etcd modules (logcheck/go.mod the logging linter), this file what has a module graph of its own. Change a pin
# and the next make rebuilds.
AXE_SHA256                     := 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
AXE_VERSION                    := 4.14.1
CONTROLLER_TOOLS_VERSION       := v0.23.0
COREDNS_VERSION                := v1.12.1
GOLANGCI_LINT_VERSION          := v2.15.0
GOVULNCHECK_VERSION            := v1.9.0
KUSTOMIZE_VERSION              := v5.7.1
KWOK_VERSION                   := v0.7.0
LOCAL_PATH_PROVISIONER_VERSION := v0.0.30
METRICS_SERVER_VERSION         := v0.9.0
VULNDB_VERSION                 := v0.0.0-20261105234957-e22db6528018

# Read from hack/tools/go.mod; linked into the programs as their version.
KUBERNETES_VERSION := $(shell awk '$$1 == "k8s.io/kubernetes" && $$2 ~ /^v/ { print $$2; exit }' hack/tools/go.mod)
