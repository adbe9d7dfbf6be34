PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test tests test-deep test-integrations test-wheel api browser lint style types bench bench-against docs gallery claims reproduce clean

demo: .venv/installed
	$(BIN)/hesscope demo --out demo

# Types are checked beside the tests: one core would wait for them.
test: .venv/installed browser style
	@$(MAKE) --no-print-directory -j2 types tests

# Each of two workers has half of the tests, in their order; who is done takes over from the end of the other's.
tests: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The long randomised versions: new draws in every property test, twenty times as many, and 2,000 random networks.
test-deep: .venv/installed
	HESSCOPE_TESTS=deep $(BIN)/python -m pytest -n 2 --dist worksteal
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -W ignore -m fuzz.run --networks 2000

# Against the real packages of others (transformers, PEFT, Lightning, trackers), in an environment of their own.
test-integrations: .venv-integrations/installed
	.venv-integrations/bin/python -m pytest tests/integrations

# The wheel as users get it: built, installed into a new environment, and run far from the checkout.
test-wheel: .venv/installed
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/pip wheel -q --no-deps -w build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install -q -c constraints.txt build/wheel/hesscope-*.whl
	cd build/wheel && venv/bin/hesscope doctor && venv/bin/hesscope demo --out demo && test -s demo/report.html

# Writes down the public names and signatures; run after a change of them that is meant.
api: .venv/installed
	$(BIN)/python tests/api_snapshot/write.py

# The report is tested in a real browser where one can be had; elsewhere those tests skip and say so.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || true

lint: style types

style: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

# The site in strict mode, each version in a folder of its own beside the earlier ones.
docs: .venv/installed
	$(BIN)/python docs/_site/versions.py --out site

# The figures of the gallery page, kept in the repository; run after changing an experiment.
gallery: .venv/installed
	$(BIN)/python docs/_site/gallery.py

# What the experiments claim, and which item of the papers is covered by what: pages written from the code.
claims: .venv/installed
	$(BIN)/python docs/_site/claims.py
	$(BIN)/python docs/_site/coverage.py
	$(BIN)/python docs/_site/gallery.py page

# The longer runs, one after the other, at lower priority; what is done is kept in docs/outcomes and not done again.
reproduce: .venv/installed
	OMP_NUM_THREADS=1 nice $(BIN)/python docs/_site/reproduce.py

bench: .venv/installed .venv-bench/installed
	.venv-bench/bin/python -m benchmarks --out docs/benchmarks.md

# Our own works, this tree against an earlier commit, in turns: make bench-against COMMIT=main~20
bench-against: .venv/installed
	$(BIN)/python -m benchmarks.against $(COMMIT)

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@

# The peers live beside us, never inside us: a second environment with the same torch.
.venv-bench/installed: pyproject.toml constraints.txt benchmarks/peers.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install -q -c constraints.txt -e ".[extra]" einops tqdm opt-einsum linear_operator
	.venv-bench/bin/pip install -q --no-deps -r benchmarks/peers.txt
	touch $@

.venv-integrations/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-integrations
	.venv-integrations/bin/pip install -q -c constraints.txt -e ".[dev,hf,lightning,track,notebook]"
	touch $@

clean:
	rm -rf .venv .venv-bench .venv-integrations demo build .mypy_cache .ruff_cache .pytest_cache
