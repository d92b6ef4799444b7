# Tests on booted kernels and in real containers: docs/lab.md. Needs Debian and, for containers, root.

.PHONY: lab lab-full lab-packages lab-clean lab-x86_64 lab-others lab-full-x86_64 lab-full-others

LAB_PYTEST := NUMADOCTOR_LAB=1 $(BIN)/python -m pytest tests/lab
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Kernels that Debian does not build are compiled, for lab-full only.
lab-full: LAB_EXTENT := full

lab-packages: $(STAMP)
	@missing=$$($(BIN)/python -m tests.lab.debian $(LAB_EXTENT)) || exit; \
	[ -z "$$missing" ] && apt-get indextargets 'Origin: Debian' | grep -q . || \
	{ echo "installing $$missing"; $(SUDO) apt-get -q update && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends $$missing; }

# A guest keeps one core busy: two runs share the machines.
lab lab-full: lab-packages
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target $@-x86_64 $@-others

lab-x86_64:
	$(LAB_PYTEST) -m 'not lab_full' -k x86_64

lab-others:
	$(LAB_PYTEST) -m 'not lab_full' -k 'not x86_64'

lab-full-x86_64:
	$(LAB_PYTEST) -k x86_64

lab-full-others:
	$(LAB_PYTEST) -k 'not x86_64'

lab-clean: $(STAMP)
	$(BIN)/python -m tests.lab.cache
