# Two commands on a fresh machine: make demo, make test. Needed: Go, Python 3.11 to 3.13 with venv, make, gcc (or
# CGO_ENABLED=0, without NVML). Everything else is installed below this folder.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
TBVENV := .venv-tensorboard
BIN    := bin/tfcluster
LOCAL_VERSION ?= $(shell git describe --always --dirty --exclude "*" 2>/dev/null | sed "s/^/+g/; s/-/./") # after the version of the file VERSION, as PEP 440 has it
export CGO_CFLAGS ?= -O2 -Wno-deprecated-declarations
GOFLAGS_BUILD := -trimpath -ldflags "-s -w -X main.build=$(strip $(LOCAL_VERSION))" # without symbols: it travels to executors
NOTEBOOKS := notebooks/01-quickstart.ipynb notebooks/03-failure-and-rerun.ipynb

.PHONY: help soak build release wheel licenses venv install demo lab test prepare lint fmt bench notebooks proto ext check-proto lock clean hadoop
.PHONY: FORCE test-engines test-matrix test-unit test-ext test-python test-backends test-notebooks test-hosts engines-backends engines-notebooks test-long test-frameworks test-rdma

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: $(BIN) ## bin/tfcluster

$(BIN): FORCE # go knows what has changed, embedded files too
	go build $(GOFLAGS_BUILD) -o $@ .

# Static, so that they run on executors whatever C library is there. Without NVML: GPUs are then listed by nvidia-smi.
release: ## dist/tfcluster-linux-{amd64,arm64}, for any C library
	@mkdir -p dist
	for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build $(GOFLAGS_BUILD) -o dist/tfcluster-linux-$$arch . || exit 1; done

# One build after the other: each has both cores. Two builds of one commit are the same, byte for byte.
WHEELENV := .venv-wheel
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)
wheel: $(WHEELENV)/.done ## dist/*.whl for x86_64 and aarch64 with glibc 2.17 or later, and the sdist
	for arch in x86_64 aarch64; do TFCLUSTER_WHEEL_ARCH=$$arch $(WHEELENV)/bin/hatchling build -t wheel -d dist || exit 1; done
	$(WHEELENV)/bin/hatchling build -t sdist -d dist

$(WHEELENV)/.done: requirements/wheel.txt
	$(PYTHON) -m venv $(WHEELENV)
	$(WHEELENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/wheel.txt
	touch $@

venv: $(VENV)/.done $(TBVENV)/.done ## the Python environments, pinned with hashes

$(VENV)/.done: requirements/main.txt requirements/spark.txt requirements/data.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "Python 3.11 to 3.13 is needed: make PYTHON=/path/to/python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements/main.txt
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements/spark.txt
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements/data.txt
	touch $@

$(TBVENV)/.done: requirements/tensorboard.txt
	$(PYTHON) -m venv $(TBVENV)
	$(TBVENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/tensorboard.txt
	touch $@

install: build venv ## the kernel and the extension into the environment
	$(BIN) install --prefix $(CURDIR)/$(VENV) --python $(CURDIR)/$(PY) --tensorboard-python $(CURDIR)/$(TBVENV)/bin/python

demo: install ## reserve, train, fail, run again: the notebooks, executed headless
	$(PY) notebooks/run.py --prefix $(VENV) $(NOTEBOOKS)

lab: install ## JupyterLab with the kernel
	$(VENV)/bin/jupyter lab --notebook-dir notebooks

# Tests are in two tiers (CONTRIBUTING.md). Both use one program, built once, and share a Hadoop and a Spark, which
# e2e/engines starts. Reports of the tests' times are below .test.
REPORTS := .test
ENGINES := $(REPORTS)/engines
test test-engines: export TFCLUSTER_TEST_PROGRAM := $(CURDIR)/$(BIN)
SIDE_BY_SIDE := $(MAKE) --no-print-directory --output-sync=target

test: ## the tests of every change, 15 minutes: lint, all unit tests, each backend, verb and front end
	@$(MAKE) --no-print-directory -j4 prepare $(BIN) $(ENGINES)
	@rm -f $(REPORTS)/test-*.xml
	$(SIDE_BY_SIDE) -j2 test-unit lint check-proto test-ext test-python
	$(ENGINES) $(SIDE_BY_SIDE) -j2 test-backends test-notebooks
	@$(PY) .ci/slowest $(REPORTS)/test-*.xml

test-engines: ## the other tests, 30 minutes: every backend whole, faults, notebooks, the browser
	@$(MAKE) --no-print-directory -j4 prepare $(BIN) $(ENGINES)
	@rm -f $(REPORTS)/engines-*.xml
	$(ENGINES) $(SIDE_BY_SIDE) -j2 engines-backends engines-notebooks
	@$(PY) .ci/slowest $(REPORTS)/engines-*.xml

$(ENGINES): FORCE
	go build -o $@ ./e2e/engines

# What the tests need and a fresh machine lacks; make -j makes it side by side.
prepare: venv .jax/.done e2e/lab/node_modules jupyter-ext/node_modules hadoop .bin/golangci-lint .bin/gotestsum .bin/protoc-gen-go .bin/protoc-gen-go-grpc .venv-proto/.done $(WHEELENV)/.done

# JAX, for the tests that put it on PYTHONPATH: TensorFlow imports it where it is installed, and every task would.
.jax/.done: requirements/jax.txt $(VENV)/.done
	rm -rf .jax && $(PY) -m pip install -q --disable-pip-version-check --require-hashes --no-deps --target .jax -r requirements/jax.txt && touch $@

# PyTorch's wheel brings CUDA: 5 GB.
.torch/.done: requirements/torch.txt $(VENV)/.done
	rm -rf .torch && $(PY) -m pip install -q --disable-pip-version-check --require-hashes --target .torch -r requirements/torch.txt && touch $@

test-frameworks: prepare .torch/.done ## the tests with PyTorch: collective calls, Lightning and Transformers
	PYTHONPATH=.jax:.torch $(PY) -m pytest -q cluster/python/tests/test_collective.py cluster/python/tests/test_progress_trainers.py
	$(PY) -m pytest -q e2e/tests/test_distributed_optimizer.py
	$(PY) -m pytest -q e2e/tests/test_why.py -k "culprits and torch"

# The browser's driver; where there is no npm the tests say that it is missing.
e2e/lab/node_modules: e2e/lab/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: the browser tests are skipped"; exit 0; }; \
	cd e2e/lab && npm ci --no-audit --no-fund --silent && touch node_modules

jupyter-ext/node_modules: jupyter-ext/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: the extension is not checked"; exit 0; }; \
	cd jupyter-ext && npm ci --no-audit --no-fund --silent && touch node_modules

# Hadoop's jars, for tests on a real one; where Maven cannot fetch them the tests say that they are missing.
HADOOP_VERSION ?= 3.3.6
JARS := .hadoop/$(HADOOP_VERSION)
hadoop: ## Hadoop's jars for the tests of HDFS and YARN (needs Maven)
	@test -e $(JARS)/.done && exit 0; command -v mvn >/dev/null || { echo "mvn is missing: the tests on HDFS and YARN are skipped"; exit 0; }; \
	mvn -q -B -f cluster/yarn/hadooptest/pom.xml -Dhadoop.version=$(HADOOP_VERSION) dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(JARS) \
	&& touch $(JARS)/.done || echo "Maven cannot fetch Hadoop $(HADOOP_VERSION): the tests on HDFS and YARN are skipped"

# Packages whose tests need a running engine or the program; the others' tests are unit tests. A few unit tests are
# long, and shorter with -short.
WITH_ENGINES := ./cluster/local ./cluster/spark/... ./cluster/yarn ./cluster/yarn/protocol ./cluster/hdfs ./cluster/runfiles/spool ./e2e/lab ./e2e/yarn
ONLY_ENGINES := /cluster/local$$|/e2e/(lab|yarn|hosts|engines)$$
LONG_UNITS := ./cluster/driver/feed ./cluster/results/logstore ./kernel/kerneltest ./tensorboard/events ./wheel
SMOKE := ^(TestSmoke|TestFeed|TestQuickstart|TestPanel|TestTensorBoardInTheCell|TestHosts)$$
GOTEST = .bin/gotestsum --format pkgname --format-icons text --junitfile $(REPORTS)/$@.xml --
PYTEST = $(PY) -m pytest -q -n 2 --dist worksteal --junitxml $(REPORTS)/$@.xml

test-unit:
	set -e; packages=$$(go list ./...); $(GOTEST) -race -short -timeout 20m $$(echo "$$packages" | grep -Ev '$(ONLY_ENGINES)')

test-python:
	$(PYTEST) cluster/python/tests

test-backends:
	@command -v /usr/bin/chromium >/dev/null || echo "chromium is missing: the browser tests are skipped"
	$(GOTEST) -timeout 20m -run '$(SMOKE)' $(WITH_ENGINES) ./e2e/hosts

test-notebooks:
	$(PYTEST) -m "not engines" e2e/tests

engines-backends:
	@command -v /usr/bin/chromium >/dev/null || echo "chromium is missing: the browser tests are skipped"
	$(GOTEST) -timeout 30m -skip '$(SMOKE)' $(WITH_ENGINES) ./e2e/hosts $(LONG_UNITS)

test-hosts: prepare $(BIN) ## what befalls hosts and their network, on a Spark and a Hadoop of several hosts; needs root or user namespaces
	TFCLUSTER_TEST_LOST_HOSTS=1 TFCLUSTER_TEST_PROGRAM=$(CURDIR)/$(BIN) $(GOTEST) -timeout 40m -count=1 ./e2e/hosts

engines-notebooks:
	$(PYTEST) -m engines e2e/tests

# The committed bundle is what the sources give, byte for byte. It is built beside the sources, which are in use; with
# hard links, because the bundler orders modules outside of its folder differently.
EXT_BUILD := $(REPORTS)/jupyter-ext
test-ext: jupyter-ext/node_modules ## the JupyterLab extension: types, eslint, prettier, jest, its bundle
	@test -d jupyter-ext/node_modules || exit 0; set -e; (cd jupyter-ext && npm run --silent lint && npx jest --silent); \
	rm -rf $(EXT_BUILD); mkdir -p $(EXT_BUILD); cd jupyter-ext; cp -r src style schema package.json tsconfig.json bundle.config.cjs ../$(EXT_BUILD); \
	cp -al "$$(readlink -f node_modules)" ../$(EXT_BUILD)/node_modules; (cd ../$(EXT_BUILD) && npm run --silent build >/dev/null); \
	diff -r labextension ../$(EXT_BUILD)/labextension || { echo "jupyter-ext/labextension is not what its sources give: run make ext"; exit 1; }; rm -rf ../$(EXT_BUILD)

# The backends against the other versions of their engines, whole.
OTHER_HADOOP := 3.4.3
test-matrix: .bin/gotestsum $(VENV)/.done .venv-spark35/.done ## Spark 3.5 beside 4.0, Hadoop 3.4 beside 3.3
	TFCLUSTER_TEST_PYTHON=$(CURDIR)/.venv-spark35/bin/python .bin/gotestsum -- -race -timeout 30m ./cluster/spark/...
	$(MAKE) --no-print-directory hadoop HADOOP_VERSION=$(OTHER_HADOOP)
	TFCLUSTER_TEST_HADOOP=$(OTHER_HADOOP) .bin/gotestsum -- -race -timeout 30m ./cluster/hdfs/... ./cluster/yarn/...

.venv-spark35/.done: requirements/spark35.txt
	$(PYTHON) -m venv .venv-spark35
	.venv-spark35/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/spark35.txt
	touch $@

# JupyterHub, for the test that puts it on PYTHONPATH.
.hub/.done: requirements/hub.txt $(VENV)/.done
	rm -rf .hub && $(PY) -m pip install -q --disable-pip-version-check --require-hashes --no-deps --target .hub -r requirements/hub.txt && touch $@

test-long: .bin/gotestsum $(VENV)/.done $(WHEELENV)/.done .hub/.done e2e/lab/node_modules ## the tests that take long: 10,000 message sequences against ipykernel, 40 kills during feeds, 50 faults during collective calls, 20 kills of an ApplicationMaster, 300 runs on one cluster, 45 stalls in each framework, JupyterHub, five minutes of the panel, 20 cuts between hosts and five minutes of a slow network, pip install into fresh environments
	TFCLUSTER_TEST_SEQUENCES=10000 .bin/gotestsum --format testname -- -timeout 60m -count=1 -run 'TestSequences$$' ./kernel/kerneltest
	TFCLUSTER_ROUNDS=20 $(PY) -m pytest -q e2e/tests/test_feed_faults.py e2e/tests/test_feed_faults_spark.py
	TFCLUSTER_ROUNDS=50 $(PY) -m pytest -q e2e/tests/test_collective_faults.py
	TFCLUSTER_TEST_RUNS=300 $(PY) -m pytest -q e2e/tests/test_many_runs.py
	TFCLUSTER_TEST_KILLS=20 .bin/gotestsum --format testname -- -timeout 60m -count=1 -run 'TestWholeCheckpoint$$' ./cluster/yarn
	TFCLUSTER_ROUNDS=5 $(PY) -m pytest -q e2e/tests/test_why.py -k "culprits and not torch"
	.bin/gotestsum --format testname -- -timeout 10m -count=1 -run 'TestHub$$' ./e2e/lab
	TFCLUSTER_TEST_CUTS=20 TFCLUSTER_TEST_DELAY_MINUTES=5 .bin/gotestsum --format testname -- -timeout 90m -count=1 -run 'TestCuts$$|TestDelay$$' ./e2e/hosts
	TFCLUSTER_TEST_PANEL_SECONDS=300 .bin/gotestsum --format testname -- -timeout 20m -count=1 -run 'TestPanelForLong$$' ./e2e/lab
	TFCLUSTER_TEST_WHEELS=1 .bin/gotestsum --format testname -- -timeout 30m -count=1 -run 'TestOtherMachine|TestRelease' ./wheel
	TFCLUSTER_TEST_WHEELS=1 $(PY) -m pytest -q e2e/tests/test_wheel.py

# Half of the time each: tfcluster.collective, then Keras's fit.
SOAK_SECONDS ?= 3600
soak: $(VENV)/.done ## an hour (SOAK_SECONDS=N) of training beside other load: the check for stalls shows no line
	TFCLUSTER_SOAK_SECONDS=$(SOAK_SECONDS) $(PY) -m pytest -q e2e/tests/test_why.py -k without_a_stall

# The test programs need no C compiler, and open libibverbs as the wheel's program does.
RDMA_TESTS := $(addprefix .rdma/,fabric.test transport.test collective.test)
.PHONY: $(RDMA_TESTS)
$(RDMA_TESTS): .rdma/%.test:
	CGO_ENABLED=0 go test -c -tags verbs -o $@ ./rdma/$*

test-rdma: $(RDMA_TESTS) ## collective calls by RDMA over soft-RoCE, in a guest of qemu with Debian's kernel
	@e2e/rdma/guest.sh 600 e2e/rdma/tests.sh e2e/rdma/latency.sh $(RDMA_TESTS); status=$$?; [ $$status = 77 ] || exit $$status

.bin/gotestsum:
	GOBIN=$(CURDIR)/.bin go install gotest.tools/gotestsum@v1.13.0

.bin/golangci-lint:
	GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

lint: .bin/golangci-lint $(VENV)/.done ## golangci-lint with the project's file (vet and gofumpt are in it), ruff
	.bin/golangci-lint run --allow-parallel-runners ./...
	$(VENV)/bin/ruff check cluster/python notebooks tensorboard kernel e2e wheel
	$(VENV)/bin/ruff format --check cluster/python notebooks tensorboard kernel e2e wheel

fmt: .bin/golangci-lint ## the formatters of golangci-lint, ruff and the extension
	.bin/golangci-lint fmt ./...
	$(VENV)/bin/ruff format cluster/python notebooks tensorboard kernel e2e wheel

bench: install hadoop ## the figures of DESIGN §5, each beside its reference in one run
	$(PY) e2e/bench/bench.py --prefix $(VENV)

notebooks: install hadoop ## execute the notebooks and keep their outputs, without this machine's names
	d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && cp notebooks/*.py notebooks/0[1-46-9]*.ipynb "$$d" && TFCLUSTER_HOME="$$d/state" SPARK_LOCAL_IP=127.0.0.1 \
	$(PY) notebooks/run.py --prefix $(VENV) --clean --output notebooks "$$d"/0[1-46-9]*.ipynb
	TFCLUSTER_NOTEBOOKS=$(CURDIR)/notebooks go test -count=1 -run TestOvernight ./e2e/yarn

# protoc is a wheel of a fixed version, so that what it gives is the same on every machine.
.venv-proto/.done: requirements/proto.txt
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/proto.txt
	touch $@

.bin/protoc-gen-go:
	GOBIN=$(CURDIR)/.bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12

.bin/protoc-gen-go-grpc:
	GOBIN=$(CURDIR)/.bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1

PROTOC := .venv-proto/bin/python -m grpc_tools.protoc -I. --plugin=.bin/protoc-gen-go --plugin=.bin/protoc-gen-go-grpc
GO_MODULE := github.com/tfcluster/tfcluster
proto: .venv-proto/.done .bin/protoc-gen-go .bin/protoc-gen-go-grpc ## clusterpb and yarnpb from their .proto files
	$(PROTOC) --go_out=$(or $(OUT),.) --go_opt=module=$(GO_MODULE) --go-grpc_out=$(or $(OUT),.) --go-grpc_opt=module=$(GO_MODULE) cluster/clusterpb/*.proto
	$(PROTOC) --go_out=$(or $(OUT),.) --go_opt=module=$(GO_MODULE) cluster/yarn/yarnpb/*.proto

check-proto: ## that the committed code is what the .proto files give, byte for byte
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; $(MAKE) --no-print-directory --silent proto OUT=$$out && \
	(cd $$out && find . -name '*.pb.go') | while read -r f; do cmp "$$f" "$$out/$$f" || { echo "$$f is not what its .proto file gives: run make proto"; exit 1; }; done

ext: ## the JupyterLab extension (needs Node.js)
	cd jupyter-ext && npm ci --no-audit --no-fund && npm run build

lock: ## requirements/*.txt from *.in (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/main.in -o requirements/main.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/main.txt requirements/spark.in -o requirements/spark.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/spark35.in -o requirements/spark35.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/tensorboard.in -o requirements/tensorboard.txt
	uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/data.in -o requirements/data.txt
	uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/jax.in -o requirements/jax.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/main.txt requirements/hub.in -o requirements/hub.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/main.txt requirements/torch.in -o requirements/torch.txt
	uv pip compile -q --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/tfos.in -o requirements/tfos.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/proto.in -o requirements/proto.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/wheel.in -o requirements/wheel.txt

licenses: ## wheel/licenses.txt, those of the Go modules in the program
	$(PYTHON) wheel/licenses.py

clean: ## what was built and installed here
	rm -rf bin build dist .bin .test .hadoop .rdma .tfos $(VENV) $(TBVENV) .venv-spark35 .venv-proto $(WHEELENV) notebooks/tfcluster-runs tfcluster-runs
