# Every target makes the environment it needs; a second call finds it ready.
#   make run                      the whole course, headless, quick profile
#   make run PROFILE=full         with all images and full budgets, one lesson after the other
#   make run JOBS=1               one lesson after the other: slower, but the times that lessons measure are right
#   make run TORCH_INDEX=URL      take torch and torchvision together from another index (see README)

PYTHON ?= python3
VENV ?= .venv
PROFILE ?= quick
JOBS ?= $(if $(filter full,$(PROFILE)),1,2)
ONLY ?=
TORCH_INDEX ?=
SETS ?=
SHORT ?=
WITHOUT_CUDA = https://download.pytorch.org/whl/cpu
PY = $(VENV)/bin/python
PIP = $(PY) -m pip install --quiet --constraint constraints.txt
# What each use needs is installed once: study, present, grade, or everything.
STUDY = $(VENV)/.study
PRESENT = $(VENV)/.present
GRADE = $(VENV)/.grade
READY = $(VENV)/.dev
# One thread for each of several test processes: two pools of threads on the same cores stand in each other's way.
TESTS = OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal

.PHONY: run test lab update slides report site demo reference grade dense check check-ci check-versions check-all lint clean

run: $(STUDY)
	PROFILE=$(PROFILE) $(PY) -m course run --jobs $(JOBS)

test: $(READY)
	$(TESTS) -m "not slow and not network"

lab: $(STUDY)
	$(PY) -m course lab

# After git pull: new versions of lessons, beside those that you have changed.
update: $(STUDY)
	$(PY) -m course lab --update

slides: $(PRESENT)
	$(PY) -m course slides

report: $(STUDY)
	$(PY) -m course report

# The reference networks from the dense one, the comparisons with other tools, and all that depends on them.
# Each finished row is committed; given again, it goes on.
reference: $(READY)
	$(PY) -m pip install --quiet --editable '.[rivals]' --constraint constraints.txt
	$(PY) -m course sweep reference --commit
	$(PY) -m course sweep ablations --commit
	$(PY) -m course.benchmarks.pruning_quality
	$(PY) -m course.benchmarks.pruning_unstructured
	$(PY) -m course.benchmarks.quantization
	$(PY) -m course.benchmarks.peers
	$(PY) -m course.benchmarks.speed
	$(PY) -m course.benchmarks.peers --speed
	$(PY) -m course.benchmarks.deployed
	$(PY) -m course results
	PROFILE=full $(PY) -m course run --publish
	$(PY) -m tests.record logits

site: $(PRESENT)
	$(PY) -m course site

demo: $(STUDY)
	$(PY) -m course demo

grade: $(GRADE)
	$(PY) -m course grade demo

# The long training of the dense network. Stopped, and given again here or on another machine, it goes on. If the network in
# build/ is better on the validation images, copy it to data/checkpoints/.
dense: $(READY)
	$(PY) -m course train --epochs 160 --batch-size 256 --muon 0.02 --weight-decay 2e-4 --label-smoothing 0 \
	  --warmup 0.03 --skip 0.5 --autoaugment --cutout 16 --image-sizes 20 24 28 32 \
	  --handover data/training/dense.safetensors --output build/dense.safetensors

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# After each change: lint, and the fast tests of what differs from the main branch.
check: lint $(READY)
	changed=$$(.ci/changed) && \
	  $(TESTS) -m "not slow and not network" tests/test_dependencies.py tests/test_size.py $$changed

# A representative share of the slow tests; ONLY="tests/pruning tests/course/grading" takes it from these folders alone.
check-ci: $(READY)
	$(TESTS) -m "ci and not network" $(ONLY)

check-all: lint $(READY)
	$(TESTS) -m ""

clean:  # what was trained, graded or made stays in build/
	rm -rf $(VENV)

# Versions of libraries other than those of constraints.txt, each set in an environment of its own; SHORT=1 tries what meets
# them most closely, in under half the time.
check-versions:
	$(PYTHON) -m course.versions $(if $(SHORT),--short) $(SETS)

# torch: from TORCH_INDEX, if that is named. Otherwise Linux without an NVIDIA driver takes the one without CUDA, which is
# 2.8 GB smaller. Not every network reaches the index that has it; then the usual one serves. uv chooses the same by itself.
# The rest comes from the usual index, for not every version of it lies beside torch.
$(VENV)/.%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.version_info[:3] == (3, 14, 1))' \
	  || { echo "This course needs Python 3.11 or newer, and not 3.14.1; name one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV), which takes some minutes and shows nothing meanwhile"
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "$(VENV) could not be made, see above; if venv is missing, on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@if [ -n "$(TORCH_INDEX)" ]; then $(PIP) --no-deps torch torchvision --index-url $(TORCH_INDEX); fi
	@if command -v uv >/dev/null && \
	  uv pip install --quiet --python $(PY) --torch-backend auto --editable '.[$*]' --constraint constraints.txt; then :; \
	else \
	  if [ -z "$(TORCH_INDEX)" ] && [ "$$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null; then \
	    $(PIP) --no-deps torch torchvision --index-url $(WITHOUT_CUDA) --retries 0 --timeout 10 >/dev/null 2>$(VENV)/pip.log \
	      || { tail -n 1 $(VENV)/pip.log; echo "so the usual torch is fetched, about 3 GB, in place of the one without CUDA"; }; fi; \
	  $(PIP) --editable '.[$*]'; fi
	@touch $@
	@if [ "$*" = dev ]; then touch $(STUDY) $(PRESENT) $(GRADE); fi
