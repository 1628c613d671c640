# Targets for people and for CI. `make` alone lists them.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
RACE        := ./internal/loglimit ./internal/work ./internal/wal ./internal/head ./internal/index ./internal/blockfile ./internal/registry ./internal/embedded/... ./internal/spool ./internal/ingest/... ./internal/query ./internal/kairos/agg ./internal/rollup ./internal/transfer ./internal/kairos ./internal/server/... ./internal/stream ./internal/writelog ./internal/graphite ./internal/graphite/event ./internal/graphite/function ./internal/timeline ./internal/timeline/api ./internal/auth ./internal/cassandra/... ./internal/cluster
# Long tests of one goroutine, in which the race detector has little to find, and one of a
# pool, which the race detector lets forget what is in it. make lint vets.
RACE_SKIP   := ^TestConformance$$/^(blocks|stats|reopen)$$|^(TestScanKeepsUp|TestCardinality|TestNamesInSlices|TestTable|TestPackedBodies|TestManyTags|TestRecordings|TestSalvageFlipped|TestForgottenSeriesCostNothing|TestEveryFlippedByte|TestLatePointsCostNoMerges|TestLatePointsShareFiles|TestReusedIDsKeepSeriesApart|TestRepairIsInterrupted|TestCheckpointHoldsFewStrings|TestMergesKeepTheNewest|TestMergeStopsBeforeTheDiskIsFull|TestFoldWithoutRoom|TestErrorAtEachCall|TestErrorAtEachCallOfOpen|TestStartOnAFullFileSystem|TestKilledOnAFullDisk|TestEmbeddedStatisticsOfAwkwardNumbers|TestGolden|TestShortDecimals|TestDecodersAreUsedAgain|TestManyPatternsAreMatchedInSlices|TestSmallDeletesStayWithinTheHead|TestVerifyAfterEachStep|TestSoundCatalogueIsSound|TestRepairOnAFailingDisk|TestLargeLists)$$
FUZZTIME    ?= 10000x
HOSTILE     ?= 2s
CASSANDRA   ?= 5.0.8
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null)

# The product is pure Go. Only the race detector needs a C compiler.
export CGO_ENABLED := 0

# How many packages are tested at once: one more than there are processors, because
# many tests wait for other processes.
ATONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: help build package test test-package test-image test-rules test-upgrade vulncheck test-contract test-cluster test-migration hostile race race-cassandra fuzz-short mutants lint bench docs

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

build: ## build bin/varve
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/varve ./cmd/varve

package: ## build archives, Debian packages, SBOMs and checksums in dist/, for TARGETS
	go run ./tools/packaging -out dist $(if $(TARGETS),-targets $(TARGETS))

test: ## run all tests; with Java and Maven, start a Cassandra node for them
	scripts/cassandra.sh with go test -p $(ATONCE) -timeout 20m ./...

test-package: ## install, start, upgrade, remove and purge the Debian package under its own systemd; needs root, two minutes
	scripts/packagetest.sh

test-image: ## build the container image and run it with docker or podman
	@scripts/imagetest.sh || { status=$$?; [ $$status = 4 ] || exit $$status; \
		echo; echo "*** CONTAINER IMAGE NOT TRIED: neither docker nor podman works here ***"; echo; }

test-upgrade: ## build earlier commits, upgrade their stores to this commit and downgrade them again; some minutes
	go test ./e2e/upgrade -upgrade -v -count=1 -timeout 30m

vulncheck: ## check the code that is called for known vulnerabilities
	@scripts/vulncheck.sh || { status=$$?; [ $$status = 4 ] || exit $$status; \
		echo; echo "*** VULNERABILITIES NOT LOOKED FOR: no govulncheck, or no database (GOVULNDB names another) ***"; echo; }

test-rules: ## test the alert rules with promtool
	@if tool="$$(scripts/promtool.sh)"; then \
		"$$tool" check rules deploy/prometheus/varve.rules.yml && "$$tool" test rules deploy/prometheus/varve.rules.test.yml; \
	else \
		echo; echo "*** ALERT RULES NOT TRIED: no promtool (exit status of scripts/promtool.sh) ***"; echo; \
	fi

test-contract: ## run the tests of the store over Cassandra, the long ones too, with version CASSANDRA (5.0.8 or 4.1.10); some minutes
	scripts/cassandra.sh with --version $(CASSANDRA) go test ./internal/cassandra -cassandra.conformance -count=1 -timeout 40m
	scripts/cassandra.sh with --version $(CASSANDRA) go test ./internal/cassandra/... ./internal/kairos -count=1 -timeout 30m
	scripts/cassandra.sh with --version $(CASSANDRA) go test ./internal/cassandra/events -skip TestThreeNodes -cassandra.long -events.histories 10 -count=1 -timeout 20m
	scripts/cassandra.sh with --version $(CASSANDRA) go test ./cmd/varve -run TestTimelinesOverCassandra -cassandra.long -count=1 -timeout 10m
	scripts/cassandra.sh with --version $(CASSANDRA) go test ./internal/cassandra -run TestFailures -cassandra.failures -count=1 -timeout 30m

test-cluster: ## test Cassandra rings under load: killed and paused nodes, one and two data centres, different clocks; and nodes with users and TLS; half an hour
	go test ./e2e/cluster -run TestRing -cluster -v -count=1 -timeout 60m
	go test ./internal/cassandra/cql ./internal/cassandra/kairosrows ./internal/cassandra/kairosrows/schema ./internal/cassandra/events -run 'TestThreeNodes|TestSecuredNode|TestRights|TestStaleReplica' -cassandra.long -p 1 -v -count=1 -timeout 20m

test-migration: ## migrate from a running KairosDB to Varve and back, and compare the data after each step; about five minutes
	scripts/cassandra.sh with go test ./e2e/migration ./cmd/varve -run 'TestMigration|TestKairosDBTakesExport' -migration -v -count=1 -timeout 20m

hostile: ## attack a running server like a malicious client, each attack for HOSTILE (2s)
	go test ./e2e/hostile -hostile.for=$(HOSTILE) -count=1 -timeout 40m

race: ## run the tests of concurrent packages under the race detector
	@if command -v "$$(go env CC)" >/dev/null; then \
		set -x; CGO_ENABLED=1 go test -race -short -vet=off -p $(ATONCE) -skip '$(RACE_SKIP)' -timeout 20m $(RACE); \
	else \
		echo; echo "*** RACE DETECTOR SKIPPED: no C compiler ($$(go env CC)) on this machine ***"; echo; \
	fi

race-cassandra: ## run the tests that need a Cassandra node (version CASSANDRA) under the race detector; twelve minutes
	CGO_ENABLED=1 scripts/cassandra.sh with --version $(CASSANDRA) go test -race -short -vet=off -p 1 -count=1 -timeout 30m ./internal/cassandra/... ./internal/cluster

# Fuzzers are given a number of inputs: before Go 1.27 one that is given a time
# may fail by its end alone (golang/go#75804).
fuzz-short: ## run every fuzzer for FUZZTIME (10000x means 10000 inputs)
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' internal cmd | xargs -n1 dirname | sort -u | while read -r dir; do \
		go test -list '^Fuzz' "./$$dir" | grep '^Fuzz' | while read -r name; do \
			echo "$$name in $$dir"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "./$$dir" </dev/null; \
		done; \
	done

# TESTS: packages whose tests are run instead of PKG's own; RUN: as in go test
# -run; SKIP: go on where an earlier run ended; JOBS: mutants at a time.
SEED  ?= 1
COUNT ?= 40
LIMIT ?= 30m
mutants: ## mutate the code of PKG in COUNT places, chosen by SEED; list the mutants that no test detects
	@test -n "$(PKG)" || { echo 'usage: make mutants PKG=./internal/wal [SEED=1] [COUNT=40] [LIMIT=30m] [TESTS="./internal/..."] [RUN=regexp] [SKIP=n] [JOBS=n]'; exit 2; }
	go run ./tools/mutants -seed $(SEED) -count $(COUNT) -limit $(LIMIT) \
		$(if $(TESTS),-tests "$(TESTS)") $(if $(RUN),-run '$(RUN)') $(if $(SKIP),-skip $(SKIP)) $(if $(JOBS),-jobs $(JOBS)) $(PKG)

lint: ## run gofmt, go vet and staticcheck
	@unformatted="$$(find . -name '*.go' -not -path './.git/*' | xargs gofmt -l)"; \
	if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

bench: ## run all benchmarks of the packages
	go test -run '^$$' -bench . -benchmem ./internal/...

docs: ## regenerate the pages that are made from code
	go test ./internal/config -run TestReferencePage -update
	go test ./internal/graphite/chart -run TestPictureOfThePage -update
	go test ./internal/graphite/function -run TestFunctionPage -update
