# Superpool. `make` alone lists the targets. Go, make and git are all that must be installed; every other program is
# built into bin/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

include hack/tools/versions.mk hack/tools/minors.mk

# Without cgo, and with the same flags everywhere, binaries and tests share one build cache, and no C compiler is
# needed. -trimpath keeps the paths of the checkout and of the module cache out of the cache's keys, so another clone or
# an emptied module cache compiles nothing again. Versions are stamped below: with -buildvcs Go would ask git, which
# refuses in a checkout of another user, as root's is often. The environment's GOFLAGS are not read; `make GOFLAGS=...`
# replaces these.
GO_BUILD_FLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0
export GOFLAGS := -mod=readonly $(GO_BUILD_FLAGS)
export GOWORK := off

GO  ?= go
BIN := $(CURDIR)/bin
GOBUILD := hack/gobuild.sh

# The tag, or v0.0.0 with the commit where no tag is near. Kubernetes' libraries demand a semantic version, and take it
# for one of Kubernetes: v0.1.0 would turn features off that came later. As v0.0.0 they take what they are.
VERSION := $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0+$$(git rev-parse --short HEAD 2>/dev/null || echo unknown))
LDFLAGS := -X github.com/superpool/superpool/internal/version.version=$(VERSION) -X k8s.io/component-base/version.gitVersion=v0.0.0+$(subst +,.,$(VERSION))
COMMANDS := $(notdir $(wildcard cmd/*))

CLUSTER_TOOLS := etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-scheduler kubectl kwok
# What real nodes need besides: programs of the node, and what runs in containers.
NODE_TOOLS    := kubelet kube-proxy pause agnhost nonewprivs regression-issue-74839 sample-apiserver coredns metrics-server local-path-provisioner image registry
REALNODES_TOOLS := $(filter-out kwok,$(CLUSTER_TOOLS)) $(NODE_TOOLS)
# Our own programs that are part of beds, not of what is installed.
BED_PROGRAMS  := bin/controlplane bin/nftpolicy
# What starts a pool on fake nodes.
POOL_PROGRAMS := $(CLUSTER_TOOLS:%=bin/%) build bin/controlplane
DEV_TOOLS     := controller-gen kustomize golangci-lint logcheck
TOOLS         := $(CLUSTER_TOOLS) $(DEV_TOOLS)

# Packages whose tests start API servers.
INTEGRATION ?= ./test/integration/... ./test/assumptions ./test/controlplane/... ./test/conformance ./test/perf/...
# Of the others, those of internal and plugins whose code or tests start goroutines or share memory between them run
# under the race detector, and only there.
UNIT ?= $(shell $(GO) list ./... | grep -vE '/test/(integration|assumptions|controlplane|conformance|perf)(/|$$)')
UNIT_RACE = $(filter $(addprefix %,$(shell grep -rlE '^[[:space:]]*go |\bsync\.|\.Go.func|errgroup' --include=*.go internal plugins | xargs -n 1 dirname | sort -u | sed 's|^|/|')),$(UNIT))
UNIT_PLAIN = $(filter-out $(UNIT_RACE) $(MODULES:%=./%),$(UNIT))
# Modules of their own with tests, which no pattern of packages finds: all of them with the gate's own tests. They are
# run each time, because Go's cache of results does not know files outside of a module.
MODULES = hack/realnodes hack/release test/monitoring
UNIT_MODULES = $(if $(filter $(UNIT_PLAIN),github.com/superpool/superpool/hack/gate),$(MODULES),$(filter $(MODULES),$(UNIT:./%=%)))
# Tests of a target, by regular expressions over their names: RUN='TestShards|TestLost', or all but SKIP. TEST_FLAGS are
# those of `go test` besides. Vet has looked at all packages in the gate's build, and need not with each target again.
export TEST_ARGS = $(strip $(if $(TEST_JSON),$(TEST_JSON) -vet=off) $(if $(RUN),-run=$(RUN)) $(if $(SKIP),-skip=$(SKIP)) $(TEST_FLAGS))
# What `make bench` runs.
BENCH_PACKAGES ?= ./internal/... ./plugins/...
BENCH_COUNT    ?= 6

##@ Use

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z0-9-]*:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(POOL_PROGRAMS) ## Start four control planes and the pool, and run the experiment step by step.
	@hack/demo.sh

.PHONY: demo-down
demo-down: ## Remove everything that the demo started.
	@hack/demo-down.sh

.PHONY: demo-single
demo-single: $(POOL_PROGRAMS) ## Start a cluster without a pool and a tenant, and run a Deployment of it step by step.
	@hack/demo-single.sh

.PHONY: demo-single-down
demo-single-down: ## Remove everything that demo-single started.
	@DEMO_DIR=_output/demo-single hack/demo-down.sh

.PHONY: realnodes
realnodes: realnodes-images ## Start the pool with real nodes: kubelets, containers, three tenants. Needs root.
	@hack/realnodes/up.sh

.PHONY: realnodes-images
realnodes-images: realnodes-check $(addprefix bin/,$(REALNODES_TOOLS)) build $(BED_PROGRAMS)
	@COREDNS_VERSION=$(COREDNS_VERSION) METRICS_SERVER_VERSION=$(METRICS_SERVER_VERSION) \
	  LOCAL_PATH_PROVISIONER_VERSION=$(LOCAL_PATH_PROVISIONER_VERSION) hack/realnodes/images.sh

.PHONY: realnodes-check
realnodes-check: ## Say what this machine lacks for real nodes.
	@hack/realnodes/check.sh

.PHONY: realnodes-demo
realnodes-demo: ## Run the experiment of the demo on the real nodes that run.
	@hack/realnodes/demo.sh

.PHONY: realnodes-down
realnodes-down: ## Remove everything that make realnodes started.
	@hack/realnodes/down.sh

##@ Build

.PHONY: build
build: | bin ## Build our programs into bin/.
	@$(GOBUILD) "$(COMMANDS)" $(GO) build -v -ldflags '$(LDFLAGS)' -o bin/ $(addprefix ./cmd/,$(COMMANDS))

.PHONY: $(BED_PROGRAMS)
bin/controlplane: | bin
	@$(GOBUILD) "controlplane" $(GO) build -v -ldflags '-s -w' -o bin/ ./test/controlplane/cmd/controlplane

bin/nftpolicy: | bin
	@$(GOBUILD) "nftpolicy" $(GO) build -v -ldflags '-s -w' -o bin/ ./test/nftpolicy/cmd/nftpolicy

# Where VERSION is not given it is the tag of the commit, or the last one with the number of commits since.
.PHONY: release
release: bin/release ## Build images, manifests with their digests, kubectl-vc and SBOMs into _output/release: VERSION=v0.1.0 REGISTRY=registry.example.com/superpool PUSH=1 FORCE=1.
	@bin/release -version '$(VERSION)' -registry '$(REGISTRY)' $(if $(PUSH),-push) $(if $(FORCE),-force)

.PHONY: bin/release
bin/release: | bin
	@cd hack/release && ../gobuild.sh "release" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/" .

.PHONY: tools
tools: $(addprefix bin/,$(TOOLS)) ## Build the pinned tools into bin/, once.

.PHONY: clean
clean: demo-down ## Remove bin/ and _output/, and stop the demo and the real nodes.
	@[[ ! -d _output/realnodes ]] || hack/realnodes/down.sh
	rm -rf bin _output

##@ Test

# Informers of client-go hold what is cached against a copy each second, in the tests and in the programs that they
# start, and end the process if it was changed.
test-unit test-integration test-integration-race test-e2e test-demo test-attacks: export KUBE_CACHE_MUTATION_DETECTOR := true

.PHONY: test
test: test-unit test-integration test-e2e ## Run all tests: unit, framework, integration on real API servers, and the demo.

# Not by `go run`, which passes no signal on.
.PHONY: bin/gate
bin/gate: | bin
	@$(GO) build -o bin/ ./hack/gate

.PHONY: gate
gate: bin/gate ## Run what decides whether a change lands, all of it, and print one report: TARGETS='unit attacks' for these alone.
	@bin/gate land $(TARGETS)

# For how long targets of the night begin.
NIGHTLY ?= 2h
.PHONY: nightly
nightly: bin/gate ## Run everything else, beginning with what failed, then what has changed, then what is oldest: NIGHTLY=2h.
	@bin/gate -for $(NIGHTLY) nightly

# How many times.
SLOW_TIMES ?= 20
.PHONY: test-slow
test-slow: bin/gate ## Run the landing's tests with two busy loops for each core beside them: SLOW_TIMES=20.
	@SLOW_TIMES='$(SLOW_TIMES)' hack/slow.sh

.PHONY: ran
ran: bin/gate ## Print when each target of gate and nightly last passed, and how many commits have changed its inputs since.
	@bin/gate ran

# What the tests import is built first, for the progress that go test does not show, and what they are is checked by
# vet, under all their build tags.
.PHONY: build-tests
build-tests:
	@$(GOBUILD) "test packages" $(GO) build -v ./...
	$(GO) vet -tags e2e,realnodes,attacks,siege,drills,upgrade ./...

# TestModel has one goroutine at a time, so that there are no races to find, and a target of its own: test-model.
.PHONY: test-unit
test-unit: SKIP = $(if $(RUN),,^TestModel$$)
test-unit: ## Run the tests without API servers, those of packages with goroutines under the race detector, which needs a C compiler: UNIT=./internal/slice RUN=TestCut.
	@command -v "$${CC:-cc}" >/dev/null || { echo "test-unit: the race detector needs a C compiler" >&2; exit 3; }
	$(if $(strip $(UNIT)),,$(error UNIT names no package))
	@$(if $(UNIT_RACE),CGO_ENABLED=1 $(GOBUILD) "race packages" $(GO) build -v -race $(UNIT_RACE))
	@code=0; $(if $(UNIT_RACE),CGO_ENABLED=1 $(GO) test -race -timeout 10m $$TEST_ARGS $(UNIT_RACE) || code=1;) \
	  $(if $(UNIT_PLAIN),$(GO) test -timeout 5m $$TEST_ARGS $(UNIT_PLAIN) || code=1;) \
  $(if $(RUN),,$(if $(filter %/internal/syncer/kinds,$(UNIT_RACE)),$(GO) test -run '^Test(ObjectsOfAnyKind|WhatAKeyHolds)$$' $(TEST_JSON) ./internal/syncer/kinds || code=1;)) \
	  $(foreach module,$(UNIT_MODULES),$(GO) -C $(module) test -count 1 -timeout 10m $$TEST_ARGS ./... || code=1;) \
	  exit $$code

# The run's length, and its first seed: another one each time. A failure prints how to run its seed again.
MODEL_STEPS ?= 300000
MODEL_SEED  ?= $(shell date +%s)
.PHONY: test-model
test-model: ## Let tenants, operators, failures and vc-scheduler act at random, and hold each step against the rules: MODEL_STEPS=1000000 MODEL_SEED=1.
	$(GO) test ./internal/scheduling -run '^TestModel$$' -count 1 -timeout 60m $(or $(TEST_JSON),-v) -model.steps $(MODEL_STEPS) -model.seed $(MODEL_SEED)

# One package at a time, and never from a cache: it does not know bin/ and what API servers read.
.PHONY: test-integration
test-integration: $(addprefix bin/,$(CLUSTER_TOOLS)) ## Run the tests on real API servers: INTEGRATION=./test/integration/syncer RUN=TestProof.
	$(GO) test -p 1 -count 1 -timeout 30m $$TEST_ARGS $(INTEGRATION)

.PHONY: test-integration-race
test-integration-race: $(addprefix bin/,$(CLUSTER_TOOLS)) ## Run them under the race detector: whole programs.
	CGO_ENABLED=1 $(GO) test -race -p 1 -count 1 -timeout 60m $$TEST_ARGS $(INTEGRATION)

# How long each fuzz target runs.
FUZZTIME ?= 1m
.PHONY: test-fuzz
test-fuzz: ## Fuzz every parser and translation, one after the other: FUZZTIME=1m.
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' hack/fuzz.sh

.PHONY: test-e2e
test-e2e: $(POOL_PROGRAMS) ## Run the demo as a test, again with its programs killed at every step, and take it down.
	$(GO) test -tags e2e -count 1 -timeout 30m $$TEST_ARGS ./test/e2e/...

# Where etcd is, the others are: build-kubernetes.sh builds it last.
OTHER_MINORS := $(foreach version,$(OTHER_KUBERNETES_VERSIONS),$(word 1,$(subst ., ,$(version:v%=%))).$(word 2,$(subst ., ,$(version:v%=%))))
.PHONY: versions
versions: $(OTHER_MINORS:%=bin/%/etcd) ## Build the control planes of other versions of Kubernetes into bin/1.35 and so on.

bin/1.%/etcd: hack/tools/minors.mk hack/lib/kubernetes.sh hack/build-kubernetes.sh | bin
	@GO='$(GO)' hack/build-kubernetes.sh $(filter v1.$*.%,$(OTHER_KUBERNETES_VERSIONS))
	@touch $@

.PHONY: test-versions
test-versions: $(POOL_PROGRAMS) $(patsubst %,bin/%/etcd,$(or $(MINORS),$(OTHER_MINORS))) ## Run the tests on real API servers and the demo with control planes of other versions: MINORS='1.35 1.36' ROLES=tenant.
	@ROLES='$(ROLES)' SKIP='$(SKIP)' hack/test-versions.sh $(or $(MINORS),$(OTHER_MINORS))

.PHONY: test-demo
test-demo: RUN := TestDemo$$|TestDemoNamesTheFailedStep
test-demo: SKIP := TestDemo/(again,_with_vc|again,_with_the_syncers|its_placement|a_DaemonSet|a_tenant|a_standby)
test-demo: test-e2e ## Run the demo as a test from nothing, again with every program killed in the middle of its work, and take it down.

.PHONY: test-attacks
test-attacks: $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Attack a pool with real API servers as a hostile tenant does (docs/security.md), and take it down.
	$(GO) test -tags attacks -count 1 -timeout 15m $$TEST_ARGS ./test/attacks

# For how long.
SIEGE ?= 5m
.PHONY: siege
siege: $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Let three tenants try what ended programs before while a fourth creates a pod each second, and compare its pods with those before: SIEGE=5m.
	SIEGE='$(SIEGE)' ATTACKERS='attacker second third' $(GO) test -tags attacks,siege -count 1 -timeout 0 -run '^TestSiege$$' -v ./test/attacks

# For how long drill away takes a super cluster away.
AWAY ?= 2m
.PHONY: drills
drills: $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Drain, lose and return super clusters of a pool of real API servers, and take it down: AWAY=2m.
	$(GO) test -tags drills -count 1 -timeout 35m $(if $(TEST_JSON),,-v) $$TEST_ARGS ./test/drills -args -away $(AWAY)

# The commit of the version before, which users have: that of the last release, or of a landing.
PREVIOUS ?= 540046eb985c3f733d8a92074c93b77d7fc658e2
_output/previous/%/bin/syncer:
	@mkdir -p $(@D) && git archive $* | tar -x -C $(@D)/..
	cd $(@D)/.. && $(GO) build -o bin/ ./cmd/vc-scheduler ./cmd/syncer
.PHONY: upgrade
upgrade: _output/previous/$(PREVIOUS)/bin/syncer $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Upgrade a pool from another version and back, one program at a time under load: PREVIOUS=<commit>.
	$(GO) test -tags upgrade -count 1 -timeout 25m $(if $(TEST_JSON),,-v) $$TEST_ARGS ./test/upgrade -args -from $(CURDIR)/_output/previous/$(PREVIOUS)

# The database is a Go module: nothing else is asked for. What cannot be mended by us is left out of it, with the reason.
.PHONY: vulnerabilities
vulnerabilities: bin/govulncheck bin/indexdb ## Look for known vulnerabilities that our programs reach, in the database of VULNDB_VERSION.
	@rm -rf _output/vulndb _output/osv && mkdir -p _output/osv
	install -m 644 -t _output/osv "$$(cd hack/tools && GOFLAGS=-mod=mod $(GO) mod download -json golang.org/x/vulndb@$(VULNDB_VERSION) | awk -F'"' '$$2 == "Dir" { print $$4 }')"/data/osv/*.json
	cd _output/osv && rm -- $$(awk '/^GO-/ { print $$1 ".json" }' $(CURDIR)/hack/tools/vulnerabilities.txt)
	bin/indexdb -vulns _output/osv -out _output/vulndb
	bin/govulncheck -db "file://$(CURDIR)/_output/vulndb" ./cmd/... || exit 1 # 3 is what the gate cannot run

.PHONY: test-fresh
test-fresh: ## Run the demo in a fresh clone with an empty module cache, and Go, make and git as the only programs besides the base system.
	@GO='$(GO)' hack/test-fresh.sh $(FRESH_FLAGS)

.PHONY: test-realnodes
test-realnodes: realnodes-images ## Run the tests on real nodes, with an imported and a provisioned tenant, and the demo's experiment there, on a bed of their own. Needs root.
	@GO='$(GO)' MODES='$(REALNODES_MODES)' TEST_TENANTS='$(REALNODES_TENANTS)' TEST_FLAGS="$$TEST_ARGS" hack/realnodes/test.sh

# Tests of CONFORMANCE_KUBECONFIG's control plane; FOCUS and SKIP are regular expressions over their names.
CONFORMANCE_KUBECONFIG ?= _output/realnodes/vc-sample-1.kubeconfig
.PHONY: conformance
conformance: bin/e2e.test bin/kubectl ## Run Kubernetes' conformance tests against a tenant: FOCUS='...' SKIP='...'. Resumes; see _output/conformance/report.md.
	$(GO) run ./test/conformance --kubeconfig '$(CONFORMANCE_KUBECONFIG)' --focus '$(FOCUS)' --skip '$(SKIP)' $(CONFORMANCE_FLAGS)

# Namespaces of tests that run alone may have 100 pods, of which one makes more than 30. The timeout is longer than two
# intervals of the API server's compaction, for which another one waits.
.PHONY: test-conformance
test-conformance: CONFORMANCE_FLAGS := --workers 4 --cpu 600m --timeout 12m --known test/conformance/known.txt --out _output/conformance/$(shell git rev-parse --short=12 HEAD)
test-conformance: ## Start the real nodes, run the conformance tests that have no result at this commit yet, and take them down. Needs root.
	@$(MAKE) --no-print-directory realnodes
	@code=0; \
	  $(MAKE) --no-print-directory conformance SKIP='\[Serial\]' CONFORMANCE_FLAGS='$(CONFORMANCE_FLAGS) --pods 30' || code=$$?; \
	  $(MAKE) --no-print-directory conformance CONFORMANCE_FLAGS='$(CONFORMANCE_FLAGS) --pods 100' || code=$$?; \
	  $(MAKE) --no-print-directory realnodes-down; exit $$code

.PHONY: bench
bench: ## Run the benchmarks BENCH_COUNT times, in a form that benchstat reads.
	$(GO) test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) $(BENCH_PACKAGES)

# How many tenants, and pods of each; RATE is in pods a second, 0 for none. Other flags: go run ./test/perf/cmd/perf -h.
PERF_TENANTS ?= 10
PERF_PODS    ?= 100
PERF_RATE    ?= 20
.PHONY: perf
perf: $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Measure a pool on fake nodes beside the same pods without one, and print a table: PERF_TENANTS=10 PERF_PODS=100 PERF_RATE=20.
	$(GO) run ./test/perf/cmd/perf -tenants $(PERF_TENANTS) -pods $(PERF_PODS) -rate $(PERF_RATE) $(PERF_FLAGS)

# For how long, and the first seed of all that is drawn at random: another one each time. A failure prints its seed.
SOAK      ?= 1h
SOAK_SEED ?= $(shell date +%s)
.PHONY: soak
soak: $(addprefix bin/,$(CLUSTER_TOOLS)) build ## Let tenants, operators and failures act at random on a pool of real API servers, and compare all sides in the end: SOAK=1h SOAK_SEED=1.
	$(GO) run ./test/soak/cmd/soak -length $(SOAK) -seed $(SOAK_SEED) -keep-logs _output/soak-logs $(SOAK_FLAGS)

##@ Develop

.PHONY: generate
generate: bin/controller-gen manifests ## Generate deep copies and CRDs from apis/, and docs/reference from both.
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	@$(GO) run ./hack/reference

.PHONY: manifests
manifests: bin/controller-gen ## Generate the CRDs of manifests/crds from apis/.
	bin/controller-gen crd paths=./apis/... output:crd:dir=manifests/crds

.PHONY: fmt
fmt: bin/golangci-lint ## Format the Go code.
	bin/golangci-lint fmt

.PHONY: lint
lint: bin/golangci-lint bin/logcheck ## Run the linters.
	@hack/verify.sh lint logging

.PHONY: verify
verify: generate $(addprefix bin/,$(DEV_TOOLS)) ## Generate, run every read-only check, then demand a clean git tree.
	@hack/verify.sh

# ---- tools: one file target each, built again when its pin changes ----

bin:
	@mkdir -p bin

KUBE_VERSION_PARTS := $(subst ., ,$(patsubst v%,%,$(KUBERNETES_VERSION)))
KUBE_LDFLAGS := -s -w \
  -X k8s.io/component-base/version.gitMajor=$(word 1,$(KUBE_VERSION_PARTS)) \
  -X k8s.io/component-base/version.gitMinor=$(word 2,$(KUBE_VERSION_PARTS)) \
  -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
  -X k8s.io/component-base/version.gitTreeState=clean

bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubectl bin/kubelet bin/kube-proxy: bin/%: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "$* $(KUBERNETES_VERSION)" $(GO) build -v -ldflags '$(KUBE_LDFLAGS)' -o "$(BIN)/$*" k8s.io/kubernetes/cmd/$*
	@touch $@

bin/agnhost: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "agnhost" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/agnhost" k8s.io/kubernetes/test/images/agnhost
	@touch $@

# Belongs to root with the set-user-ID bit, and prints the user that it then runs as, which no-new-privileges decides.
bin/nonewprivs: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "nonewprivs" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/nonewprivs" k8s.io/kubernetes/test/images/nonewprivs
	@chmod 6755 $@

# Answers connections with packets that are outside of their windows.
bin/regression-issue-74839: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "$(@F)" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/$(@F)" k8s.io/kubernetes/test/images/$(@F)
	@touch $@

bin/pause bin/image bin/registry: bin/%: hack/realnodes/go.mod $(wildcard hack/realnodes/*/main.go) | bin
	@cd hack/realnodes && ../gobuild.sh "$*" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/$*" ./$*
	@touch $@

bin/etcd: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "etcd" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/etcd" go.etcd.io/etcd/server/v3
	@touch $@

# By which backups are made and restored, as in the image of etcd.
bin/etcdctl bin/etcdutl: bin/%: hack/tools/go.mod | bin
	@cd hack/tools && ../gobuild.sh "$*" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/$*" go.etcd.io/etcd/$*/v3
	@touch $@

# $(call install-tool,LDFLAGS,PACKAGE@VERSION): a tool with a module graph of its own.
install-tool = cd hack/tools && GOBIN="$(BIN)" GOFLAGS="-mod=mod $(GO_BUILD_FLAGS)" ../gobuild.sh "$(@F) $(lastword $(subst @, ,$(2)))" $(GO) install -v -ldflags '-s -w $(1)' $(2) && touch "$(BIN)/$(@F)"

bin/kwok: hack/tools/versions.mk | bin
	@$(call install-tool,-X sigs.k8s.io/kwok/pkg/consts.Version=$(KWOK_VERSION),sigs.k8s.io/kwok/cmd/kwok@$(KWOK_VERSION))

bin/coredns: hack/tools/versions.mk | bin
	@$(call install-tool,,github.com/coredns/coredns@$(COREDNS_VERSION))

bin/metrics-server: hack/tools/versions.mk | bin
	@$(call install-tool,,sigs.k8s.io/metrics-server/cmd/metrics-server@$(METRICS_SERVER_VERSION))

bin/local-path-provisioner: hack/tools/versions.mk | bin
	@$(call install-tool,-X main.VERSION=$(LOCAL_PATH_PROVISIONER_VERSION),github.com/rancher/local-path-provisioner@$(LOCAL_PATH_PROVISIONER_VERSION))

bin/controller-gen: hack/tools/versions.mk | bin
	@$(call install-tool,,sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_TOOLS_VERSION))

bin/govulncheck: hack/tools/versions.mk | bin
	@$(call install-tool,,golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION))

bin/indexdb: hack/tools/versions.mk | bin
	@$(call install-tool,,golang.org/x/vulndb/cmd/indexdb@$(VULNDB_VERSION))

bin/kustomize: hack/tools/versions.mk | bin
	@$(call install-tool,,sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION))

bin/golangci-lint: hack/tools/versions.mk | bin
	@$(call install-tool,-X main.version=$(GOLANGCI_LINT_VERSION:v%=%),github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION))

# What the tests import is built first, for the progress that go test -c does not show.
bin/e2e.test: hack/tools/conformance/go.mod | bin
	@cd hack/tools/conformance && ../../gobuild.sh "conformance tests" $(GO) build -v -tags tools .
	@cd hack/tools/conformance && $(GO) test -c -ldflags '$(KUBE_LDFLAGS)' -o "$(BIN)/e2e.test" k8s.io/kubernetes/test/e2e
	@touch $@

bin/sample-apiserver: hack/tools/conformance/go.mod | bin
	@cd hack/tools/conformance && ../../gobuild.sh "sample-apiserver" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/$(@F)" k8s.io/sample-apiserver
	@touch $@

bin/logcheck: hack/tools/logcheck/go.mod | bin
	@cd hack/tools/logcheck && ../../gobuild.sh "logcheck" $(GO) build -v -ldflags '-s -w' -o "$(BIN)/logcheck" sigs.k8s.io/logtools/logcheck
	@touch $@
