# scrip. `make` lists the targets.

SHELL      := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# The Go that builds and tests is the one of go.mod, also where an older or newer one is installed: it is fetched once.
export GOTOOLCHAIN := $(shell sed -n 's/^toolchain //p' go.mod)

# Arguments of serve, as in: make run ARGS='--http-listen 127.0.0.1:8081'
ARGS     ?=
# How long each fuzzer runs.
FUZZTIME ?= 10s
# How long soak runs in all, which of its parts (all = empty), and the seed of its random choices (printed; empty = a new one).
SOAK     ?= 30m
PARTS    ?=
SEED     ?=
# Flags of go test, as in: make test TESTFLAGS=-count=1
TESTFLAGS ?=
# Packages and benchmarks to run.
BENCH    ?= .
IMAGE    ?= scrip
# Where measurements are stored.
RESULTS  ?= cmd/scripbench/results
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
# For which systems dist builds, and where.
TARGETS  ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST     ?= bin/dist

# The other modules. Of those that read documents with heavy parsers, lint runs the tests.
MODULES   = cmd/scripbench $(DOCUMENTS)
DOCUMENTS = docker/prometheus cmd/internal/api/validate cmd/internal/cluster/manifests
# Packages of the product in which goroutines meet, found in their code without tests. Those whose tests run other programs are left
# out: the race detector sees the test's own process alone.
PROGRAMS   = cmd/scrip/|cmd/pushsender/|cmd/internal/(cluster|demo|e2e|process|soak)/|projections/projtest/|streams/streamtest/
CONCURRENT = $(shell grep -rlE --include='*.go' --exclude='*_test.go' --exclude-dir=scripbench --exclude-dir=validate '^\s*go (func|[a-z])|errgroup|sync\.|atomic\.' domain streams projections cmd | grep -vE '^($(PROGRAMS))' | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: help
help: ## Show this.
	@echo 'scrip: coupons on NATS JetStream, with read tables in PostgreSQL'
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup: ## Install PostgreSQL if it is missing (by apt, as root or with sudo). Go is only checked. test and bench add Redis, strace, Chromium.
	@docker/setup.sh

.PHONY: setup-bench
setup-bench:
	@docker/setup.sh bench

.PHONY: build
build: ## Build bin/scrip, bin/scripbench and bin/pushsender.
	@mkdir -p bin
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/scrip ./cmd/pushsender
	cd cmd/scripbench && go build -trimpath -ldflags '-X main.version=$(VERSION)' -o ../../bin/ .

.PHONY: run
run: setup build ## Build and serve on ./data, all in one process. ARGS='…' is passed to serve.
	exec bin/scrip serve $(ARGS)

.PHONY: cluster
cluster: setup ## Run three NATS nodes, PostgreSQL and three servers on ./cluster. ARGS='kill nats-2' and others are commands to it.
	@mkdir -p bin
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/scrip ./cmd/scrip
	go build -trimpath -o bin/nats-server github.com/nats-io/nats-server/v2
	go build -trimpath -o bin/scrip-cluster ./cmd/internal/cluster
	exec bin/scrip-cluster $(ARGS)

.PHONY: test
test: setup-bench ## Run the tests of a working day: minutes. TESTFLAGS=-count=1 runs them all again.
	@# Many packages wait for others' timeouts: four at once keep two cores busy.
	@(cd cmd/scripbench && exec go test -vet=off $(TESTFLAGS) ./...) & bench=$$!; \
	failed=0; go test -vet=off -p 4 $(TESTFLAGS) ./... || failed=1; wait $$bench || failed=1; exit $$failed
	@if [ "$$(id -u)" != 0 ] || ! [ -w /dev/fuse ]; then echo 'skipped: the power cuts of cmd/internal/e2e/power, which need root and /dev/fuse'; fi
	@for program in node npm python3 curl; do command -v $$program >/dev/null || echo "skipped: the programs in cmd/internal/examples that need $$program"; done
	@if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then echo 'skipped: the tests of the console in a browser, which need chromium'; fi
	@if command -v npm >/dev/null && ! [ -d bin/examples/node_modules ]; then echo 'skipped: claim_nats.mjs in cmd/internal/examples, as npm could not install what it imports'; fi

.PHONY: race
race: setup ## Run the tests of packages with goroutines under the race detector.
	go test -race -vet=off -p 3 $(filter-out ./streams/lease,$(CONCURRENT))
	@# One thread: the race detector of Go 1.26 can crash (SIGSEGV) where two run timers of one synctest bubble at once.
	go test -race -vet=off -cpu 1 ./streams/lease

.PHONY: lint
lint: ## Check formatting, go vet, staticcheck, imports, the documents that heavy parsers read, and that dist is reproducible.
	@unformatted=$$(gofmt -l domain streams projections cmd docker); if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	go build -o bin/ honnef.co/go/tools/cmd/staticcheck
	@for module in . $(MODULES); do echo "vet and staticcheck in $$module"; (cd $$module && go vet -tags dist,peers ./... && $(CURDIR)/bin/staticcheck -tags dist,peers ./...); done
	go test -vet=off ./cmd/internal/arch
	@for module in $(DOCUMENTS); do (cd $$module && go test -vet=off ./...); done
	go test -vet=off -tags dist -run '^TestDist$$' ./cmd/scrip

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what the programs call, where the database of govulncheck can be reached.
	@go build -o bin/ golang.org/x/vuln/cmd/govulncheck
	@found=$$(bin/govulncheck ./cmd/scrip ./cmd/pushsender 2>&1) && echo "$$found" || { echo "$$found"; \
	if grep -q '^govulncheck: fetching vulnerabilities' <<<"$$found"; then echo 'skipped: govulncheck, whose database cannot be reached'; else exit 1; fi; }

.PHONY: soak
soak: setup-bench ## Chaos, power cuts, kill -9, clusters under faults, random requests of /v1, claims beside attackers, rebuilds beside readers, costs of reads and peers for SOAK (30m) in all; seeds and a table at the end. PARTS picks some.
	go run ./cmd/internal/soak -for $(SOAK) $(if $(PARTS),-parts $(PARTS)) $(if $(SEED),-seed $(SEED))

.PHONY: fuzz
fuzz: ## Run every fuzzer for FUZZTIME (10s).
	@grep -rlE --include='*_test.go' '^func Fuzz' domain streams projections cmd docker | while read -r file; do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
			echo "$$name in $$(dirname "$$file")"; \
			(cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) .); \
		done; \
	done

.PHONY: bench
bench: setup-bench build ## Measure scrip, Redis, PostgreSQL and bare JetStream, in a quarter of an hour. Text and JSON go to RESULTS.
	@mkdir -p $(RESULTS)
	bin/scripbench run --durability always --for 3s --results $(RESULTS)
	bin/scripbench run claim-hot --durability interval --for 3s --results $(RESULTS)
	bin/scripbench lookup-http --results $(RESULTS)
	bin/scripbench tables --results $(RESULTS)
	bin/scripbench restart --results $(RESULTS)
	bin/scripbench expire --n 1000000 --runs 1 --results $(RESULTS)
	bin/scripbench remind --n 200000 --runs 1 --results $(RESULTS)

.PHONY: bench-full
bench-full: setup-bench build ## Measure 10,000,000 claims, ten million coupons that expire, a million reminders at once, sixty million pending. Takes two hours.
	@mkdir -p $(RESULTS)
	bin/scripbench run claim-hot --n 10000000 --for 3m --runs 1 --systems scrip,redis-x16,pg-batch-256,limit --name 10M --results $(RESULTS)
	bin/scripbench run --durability interval --results $(RESULTS)
	bin/scripbench restart --n 10000000 --name full --results $(RESULTS)
	bin/scripbench tables --n 10000000 --name full --results $(RESULTS)
	bin/scripbench expire --runs 1 --name 10M --results $(RESULTS)
	bin/scripbench remind --name 1M --results $(RESULTS)
	bin/scripbench merge --name 1M --results $(RESULTS)
	bin/scripbench pending --name 60M --results $(RESULTS)

.PHONY: gobench
gobench: ## Run the Go benchmarks of the packages. BENCH='…' picks some.
	@for module in . $(MODULES); do (cd $$module && go test -run '^$$' -bench '$(BENCH)' -benchmem ./...); done

.PHONY: image
image: ## Build the container image.
	docker build -f docker/Dockerfile --build-arg VERSION=$(VERSION) -t $(IMAGE) .

.PHONY: dist
dist: ## Build static programs for TARGETS into DIST (bin/dist), with SHA256SUMS. The same source and Go give the same bytes.
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@for target in $(TARGETS); do for program in scrip pushsender; do \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} go build -trimpath -buildvcs=false -ldflags '-s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT)' \
			-o "$(DIST)/$$program-$${target%/*}-$${target#*/}" ./cmd/$$program; \
	done; done
	@cd $(DIST) && if command -v sha256sum >/dev/null; then sha256sum scrip-* pushsender-*; else shasum -a 256 scrip-* pushsender-*; fi > SHA256SUMS && cat SHA256SUMS

# What pages of the console use, from npm, by name, version and file.
VENDOR     = htmx.org@2.0.11:dist/htmx.min.js htmx-ext-sse@2.2.4:dist/sse.min.js idiomorph@0.8.0:dist/idiomorph-ext.min.js \
	uplot@1.6.32:dist/uPlot.iife.min.js uplot@1.6.32:dist/uPlot.min.css @picocss/pico@2.1.1:css/pico.classless.min.css
VENDORED   = cmd/internal/console/assets/vendor

.PHONY: web-vendor
web-vendor: ## Fetch the scripts and styles of the console from npm into the tree, with their licences and SHA256SUMS.
	@rm -rf $(VENDORED) && mkdir -p $(VENDORED)
	@dir=$$(mktemp -d) && for one in $(VENDOR); do \
		package=$${one%:*} && file=$${one##*:} && name=$${package#@} && name=$${name%@*} && name=$${name//\//-} && \
		mkdir -p $$dir/$$name && tar xzf "$$dir/$$(cd $$dir && npm pack -s $$package)" -C $$dir/$$name && \
		cp $$dir/$$name/package/$$file $(VENDORED)/ && cp $$dir/$$name/package/LICENSE* $(VENDORED)/LICENSE-$$name.txt; \
	done && rm -rf $$dir
	@cd $(VENDORED) && sha256sum LICENSE-* *.js *.css > SHA256SUMS && cat SHA256SUMS

.PHONY: clean
clean: ## Remove bin. The data directory stays.
	rm -rf bin
