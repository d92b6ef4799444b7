# Tests on booted kernels and in real containers: docs/lab.md. Needs Debian and, for containers, root.

.PHONY: lab lab-full lab-packages lab-clean

LAB_PYTEST := NUMADOCTOR_LAB=1 $(BIN)/python -m pytest tests/lab
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

lab-packages: $(STAMP)
	@missing=$$($(BIN)/python -m tests.lab.debian) || exit; \
	[ -z "$$missing" ] && apt-get indextargets 'Origin: Debian' | grep -q . || \
	{ echo "installing $$missing"; $(SUDO) apt-get -q update && \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends $$missing; }

lab: lab-packages
	$(LAB_PYTEST) -m 'not lab_full'

lab-full: lab-packages
	$(LAB_PYTEST)

lab-clean: $(STAMP)
	$(BIN)/python -m tests.lab.cache
