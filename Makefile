# mrirecond: build, test, install.   make help
#   CC=gcc|clang   CUDA=auto|0|1   FFTW=0 (no CPU path)   SAN=1 (address and undefined-behaviour sanitizers)   BUILD=folder
#   DESTDIR= PREFIX=
ifeq ($(origin CC),default)
CC := gcc
endif
BUILD  ?= build
CUDA   ?= auto
SAN    ?= 0
FFTW   ?= 1
PREFIX ?= /usr/local
NVCC   ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
VERSION := 0.1.0

DEPS := build-essential pkg-config curl ca-certificates patchelf clang libomp-dev libclang-rt-14-dev clang-format \
	cppcheck libmicrohttpd-dev libgnutls28-dev libismrmrd-dev ismrmrd-schema libhdf5-dev libxml2-dev libfftw3-dev libsqlite3-dev libjansson-dev \
	libcurl4-gnutls-dev libpng-dev zlib1g-dev libnifti-dev libseccomp-dev libsystemd-dev libcmocka-dev dpkg-dev mandoc \
	python3 python3-numpy python3-h5py python3-yaml

PACKAGES := libmicrohttpd gnutls sqlite3 jansson libxml-2.0 hdf5-serial fftw3f libpng zlib libseccomp libsystemd libcurl
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
CFLAGS   ?= -O2 -g
override CFLAGS += -std=c17 -D_GNU_SOURCE -I. -fopenmp -fno-math-errno -fstack-protector-strong -MMD -MP $(WARN) \
	-DMRIRECON_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null | sed 's/-I/-isystem /g')
override LDFLAGS += -Wl,--as-needed -fopenmp -rdynamic
ifeq ($(SAN),1)
override CFLAGS  += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
override LDFLAGS += -fsanitize=address,undefined
endif

# make V=1 shows whole commands.
say = $(if $(V),,@echo '$(1)' &&) 

pkg = $(shell pkg-config --libs $(1) 2>/dev/null)
LIBS_GRIDDING = $(if $(filter 0,$(FFTW)),,$(call pkg,fftw3f)) -lm
LIBS_RECON    = -lismrmrd $(call pkg,hdf5-serial) $(call pkg,libxml-2.0 libpng zlib libseccomp jansson)
# The codec has libhdf5 in itself, where its archive is there: the shared one brings curl, OpenSSL and Kerberos, which the process that reads
# uploads has no use for, and of which three quarters of its start consisted (7.0 ms of processor time, 1.6 without).
HDF5_ARCHIVE  = $(firstword $(wildcard $(patsubst -L%,%/libhdf5.a,$(filter -L%,$(call pkg,hdf5-serial)))))
LIBS_CODEC    = $(if $(HDF5_ARCHIVE),$(patsubst -lhdf5,$(HDF5_ARCHIVE) -lsz,$(LIBS_RECON)),$(LIBS_RECON)) -lm
LIBS_DAEMON   = $(call pkg,libmicrohttpd gnutls sqlite3 libsystemd jansson) -lm
LIBS_CLIENT   = $(call pkg,libcurl jansson)

# A program is one *_main.c; everything else of a room is its archive.
OTHER_FFT := gridding/base/$(if $(filter 0,$(FFTW)),fft_cpu,fft_none).c
sources  = $(filter-out %_main.c $(OTHER_FFT),$(foreach d,$(1),$(wildcard $(d)/*.c)))
rooms    = $(patsubst %/,%,$(wildcard $(1)/*/))
objects  = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GRIDDING := $(call objects,$(call sources,gridding/base gridding/range gridding))
RECON    := $(call objects,$(call sources,recon $(call rooms,recon)))
DAEMON   := $(call objects,$(call sources,daemon $(call rooms,daemon)))
CLIENTS  := $(call objects,$(call sources,clients))
ARCHIVES := $(BUILD)/lib/daemon.a $(BUILD)/lib/recon.a $(BUILD)/lib/gridding.a
GPU_SO   := $(BUILD)/lib/mrirecon/mrirecon-gpu.so
BIN      := $(addprefix $(BUILD)/bin/,mrirecond mrirecon-worker mrirecon-codec mrirecon)
UNIT     := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
GPU_TESTS := $(patsubst tests/gpu/%.c,$(BUILD)/tests/%,$(wildcard tests/gpu/test_*.c))
FAULTS   := $(patsubst tests/faults/%.c,$(BUILD)/tests/%.so,$(wildcard tests/faults/*.c))
E2E      := $(wildcard tests/e2e/test_*.py)
# Of these, sanitizers would see nothing that they do not see of the others.
E2E_PLAIN := $(patsubst %,tests/e2e/test_%.py,man plots runner)
BENCH    := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/bench_*.c))
# What the thesis' experiments compare: on the CPU, and on the GPU where nvcc is.
RIVALS     := $(call objects,$(wildcard tests/bench/rival_*.c))
RIVALS_GPU := $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(wildcard tests/bench/*.cu))

# GPU leaves: machine code for compute capability 8.0 (which 8.6 and 8.9 run, too), 9.0 and newer, and PTX for what comes after.
ifneq ($(CUDA),0)
GPU := $(if $(or $(NVCC),$(filter 1,$(CUDA))),$(GPU_SO))
endif
CUDA_ARCHS ?= 80 90 100 120
GPU_OBJECTS := $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(foreach d,gridding/base gridding/range gridding,$(wildcard $(d)/*.cu)))
NVCCFLAGS := -std=c++17 -O3 -I. -MMD -MP -Xcompiler -fPIC,-Wall,-Wextra -Werror all-warnings \
	$(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) \
	-gencode=arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))

MAN      := $(patsubst docs/man/%,$(BUILD)/man/%,$(wildcard docs/man/*.[158]))
# In the folders where they are here, so that their links hold.
DOCS     := README.md CONTRIBUTING.md LICENSE $(wildcard docs/*.md docs/*.yaml docs/*.png docs/plots/*.svg docs/tutorial/*.png clients/*.md clients/monitoring/*)
# Programs that no person starts have mrirecond's page.
MAN_ALSO := mrirecon-worker.8 mrirecon-codec.8

all: $(BIN) $(GPU) $(MAN)

# The options of the configuration are written into its page.
$(BUILD)/man/%: docs/man/% docs/man/page.awk $(BUILD)/bin/mrirecond
	@mkdir -p $(@D)
	$(call say,page $<)$(BUILD)/bin/mrirecond --sample-config | awk -v version=$(VERSION) -f docs/man/page.awk - $< >$@

$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call say,nvcc $<)$(or $(NVCC),$(error CUDA=1 and no nvcc: set NVCC)) $(NVCCFLAGS) -c -o $@ $<
$(GPU_SO): $(GPU_OBJECTS)
	@mkdir -p $(@D)
	$(NVCC) -shared -cudart static -Xcompiler -static-libstdc++,-static-libgcc -o $@ $^
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,$(CC) $<)$(CC) $(CFLAGS) -c -o $@ $<
# For the metric that tells which build runs.
CUDA_RELEASE = $(shell $(NVCC) --version | sed -n 's/.* release \([0-9.]*\),.*/\1/p')
$(BUILD)/obj/daemon/queue/metrics.o: override CFLAGS += -DMRIRECON_CUDA='"$(if $(GPU),$(CUDA_RELEASE),none)"'
# Leaves compiled for one instruction set each; chosen at run time.
$(BUILD)/obj/%_avx2.o: override CFLAGS += -mavx2 -mfma
$(BUILD)/obj/%_avx512.o: override CFLAGS += -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mprefer-vector-width=512
$(BUILD)/obj/gridding/%.o: override CFLAGS += -O3 -ffp-contract=fast -Wno-psabi
ifeq ($(SAN),1)
# Instrumented and unrolled, these few loops would take minutes each to compile.
$(BUILD)/obj/gridding/range/points_%.o: override CFLAGS += -O1
endif
# Tests read NIfTI back with the reference library.
$(BUILD)/obj/tests/%.o: override CFLAGS += -isystem /usr/include/nifti

$(BUILD)/lib/gridding.a: $(GRIDDING)
$(BUILD)/lib/recon.a: $(RECON)
$(BUILD)/lib/daemon.a: $(DAEMON)
$(BUILD)/lib/clients.a: $(CLIENTS)
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $^

link = @mkdir -p $(@D) && echo "link $@" && $(CC) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS)
$(BUILD)/bin/mrirecond: $(BUILD)/obj/daemon/daemon_main.o $(ARCHIVES)
	$(link) $(LIBS_DAEMON)
$(BUILD)/bin/mrirecon-worker: $(BUILD)/obj/daemon/worker/worker_main.o $(ARCHIVES)
	$(link) $(LIBS_RECON) $(LIBS_GRIDDING)
$(BUILD)/bin/mrirecon-codec: $(BUILD)/obj/recon/scan/codec_main.o $(BUILD)/lib/recon.a $(BUILD)/lib/gridding.a
	$(link) $(LIBS_CODEC)
$(BUILD)/bin/mrirecon: $(BUILD)/obj/clients/client_main.o $(BUILD)/lib/clients.a $(ARCHIVES)
	$(link) $(LIBS_CLIENT) $(LIBS_RECON) $(LIBS_GRIDDING)
$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(BUILD)/lib/clients.a $(ARCHIVES)
	$(link) -lcmocka -lniftiio -lznz $(LIBS_CLIENT) $(LIBS_DAEMON) $(LIBS_RECON) $(LIBS_GRIDDING) $(call pkg,fftw3)
$(BUILD)/tests/test_rival: $(RIVALS)
$(GPU_TESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/gpu/%.o $(BUILD)/lib/gridding.a
	$(link) $(LIBS_GRIDDING)
# nvcc links it: it knows where its own run-time library lies, also when the nvcc in PATH is a script that calls another.
$(BUILD)/bench/mrirecond-bench: $(call objects,$(wildcard tests/bench/thesis_*.c)) $(RIVALS) $(RIVALS_GPU) $(BUILD)/lib/gridding.a
	$(call say,link $@)$(NVCC) -cudart static -o $@ $(filter %.o,$^) $(filter %.a,$^) $(addprefix -Xlinker ,--as-needed --export-dynamic) -Xcompiler -fopenmp $(LIBS_GRIDDING) -ldl
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(ARCHIVES)
	$(link) $(LIBS_RECON) $(LIBS_GRIDDING)

unit: $(UNIT)
bench: $(BENCH) $(if $(GPU),$(BUILD)/bench/mrirecond-bench) all

# ---- for people ----
help:
	@sed -n 's/^## //p' Makefile
## make                 build/bin/{mrirecond,mrirecon-worker,mrirecon-codec,mrirecon}
## make demo [SCAN=f]   install what is missing, build, reconstruct a simulated scan (or one's own) through the daemon, save demo.png
demo: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@tests/demo.sh '$(BUILD)' $(if $(SCAN),'$(SCAN)')
## make check           install what is missing, build with gcc, clang and sanitizers, run every test
check: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all unit bench $(FAULTS) $(if $(GPU),$(BUILD)/tests/poison.so)
	@$(MAKE) --no-print-directory -j$$(nproc) CC=clang BUILD=$(BUILD)/clang CUDA=0 all unit
	@$(MAKE) --no-print-directory -j$$(nproc) SAN=1 BUILD=$(BUILD)/san CUDA=0 all unit $(FAULTS:$(BUILD)/%=$(BUILD)/san/%)
	@$(MAKE) --no-print-directory -j$$(nproc) fuzz
	@$(MAKE) --no-print-directory $(PROMETHEUS)
	@tests/run tests/check_includes tests/check_units tests/check_security tests/fuzz/test_fuzz.sh tests/fuzz/test_hour.py $(foreach b,$(BUILD) $(BUILD)/clang $(BUILD)/san,MRIRECON_BIN=$(b)/bin $(UNIT:$(BUILD)/%=$(b)/%)) \
	  MRIRECON_BIN=$(BUILD)/san/bin $(filter-out $(E2E_PLAIN),$(E2E)) MRIRECON_BIN=$(BUILD)/bin $(E2E)
# Debian's package, unpacked: installing it would start a Prometheus. Without it a test is skipped, loudly.
PROMETHEUS := $(BUILD)/prometheus/usr/bin/prometheus
$(PROMETHEUS):
	@mkdir -p $(BUILD)/prometheus; s=; [ "$$(id -u)" = 0 ] || s=sudo; cd $(BUILD)/prometheus; get() { apt-get download -qq prometheus 2>/dev/null; }; \
	{ get || { $$s apt-get update -qq && get; }; } && dpkg -x prometheus_*.deb . && rm prometheus_*.deb || echo 'no prometheus: its test will be skipped'
## make check-gpu       the tests of the GPU leaves, and of the daemon from the bundle, on a machine with a GPU
check-gpu: bundle bench $(GPU_TESTS) $(BUILD)/tests/poison.so
	MRIRECON_POISON_SO=$(BUILD)/tests/poison.so tests/run $(GPU_TESTS) MRIRECON_BIN=$(BUILD)/bundle/bin tests/gpu/test_daemon.py
	$(BUILD)/bench/mrirecond-bench --sets tiny --runs 1 >/dev/null
# Preloaded into a daemon whose disk loses its power or fails, or whose clock jumps; loaded by a worker whose GPU fails: no sanitizer of their own.
$(FAULTS): $(BUILD)/tests/%.so: tests/faults/%.c
	@mkdir -p $(@D)
	$(call say,$(CC) $<)$(CC) -std=c17 -O2 -I. -fPIC -shared -Wall -Wextra -Werror -o $@ $< -ldl
$(BUILD)/tests/poison.so: $(BUILD)/obj/tests/gpu/poison.cu.o
	@mkdir -p $(@D)
	$(call say,link $@)$(NVCC) -shared -cudart static -o $@ $^
## make check-deb       the Debian package: install, boot its service, upgrade, purge in a root of its own (debootstrap, systemd-nspawn; as root)
check-deb: deb
	@$(MAKE) --no-print-directory deps DEPS='debootstrap lintian systemd-container'
	tests/run MRIRECON_BIN=$(BUILD)/bin tests/deb.sh
## make deps            install the Debian packages that are missing
deps:
	@missing=; for p in $(DEPS); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "installing:$$missing"; s=; [ "$$(id -u)" = 0 ] || s=sudo; \
	  $$s apt-get update -qq && $$s env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
## make install         into $(DESTDIR)$(PREFIX); make uninstall takes it away again
install: all
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/mrirecon lib/systemd/system lib/sysusers.d lib/tmpfiles.d share/man/man1 share/man/man5 share/man/man8)
	install $(BIN) $(DESTDIR)$(PREFIX)/bin
	$(if $(GPU),install $(GPU_SO) $(DESTDIR)$(PREFIX)/lib/mrirecon)
	sed 's|@PREFIX@|$(PREFIX)|g' systemd/mrirecond.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/mrirecond.service
	install -m 644 systemd/mrirecond.socket $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 systemd/mrirecond.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/mrirecond.conf
	install -m 644 systemd/mrirecond.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/mrirecond.conf
	for f in $(DOCS); do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/doc/mrirecond/$$f || exit; done
	for p in $(MAN); do install -m 644 $$p $(DESTDIR)$(PREFIX)/share/man/man$${p##*.} || exit; done
	for p in $(MAN_ALSO); do ln -sf mrirecond.8 $(DESTDIR)$(PREFIX)/share/man/man8/$$p || exit; done
	test -e $(DESTDIR)/etc/mrirecond/mrirecond.conf || install -D -m 644 systemd/mrirecond.conf $(DESTDIR)/etc/mrirecond/mrirecond.conf
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(patsubst %,bin/%,$(notdir $(BIN))) lib/systemd/system/mrirecond.service lib/systemd/system/mrirecond.socket \
	  lib/sysusers.d/mrirecond.conf lib/tmpfiles.d/mrirecond.conf $(foreach p,$(notdir $(MAN)) $(MAN_ALSO),share/man/man$(lastword $(subst ., ,$p))/$p))
	rm -rf $(DESTDIR)$(PREFIX)/lib/mrirecon $(DESTDIR)$(PREFIX)/share/doc/mrirecond
## make bundle          build/bundle: binaries and their non-system libraries, runs elsewhere with nothing installed
SYSTEM_LIBS := linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|libresolv\.so|libcufft|libcuda
bundle: all
	rm -rf $(BUILD)/bundle && mkdir -p $(BUILD)/bundle/bin $(BUILD)/bundle/lib/mrirecon
	cp $(BIN) $(BUILD)/bundle/bin
	$(if $(GPU),cp $(GPU_SO) $(BUILD)/bundle/lib/mrirecon)
	ldd $(BIN) | awk '$$2=="=>" && $$3 ~ /^\// {print $$3}' | grep -vE '/($(SYSTEM_LIBS))' | sort -u | xargs cp -L -t $(BUILD)/bundle/lib
	strip --strip-debug $(BUILD)/bundle/bin/* $(BUILD)/bundle/lib/*.so*
	patchelf --force-rpath --set-rpath '$$ORIGIN/../lib' $(BUILD)/bundle/bin/*
	patchelf --force-rpath --set-rpath '$$ORIGIN' $(BUILD)/bundle/lib/*.so*
	cp README.md LICENSE $(BUILD)/bundle
## make deb             build/mrirecond_VERSION_ARCH.deb: installs, starts, upgrades (keeping the queue), purges
deb: all
	+@MAKE='$(MAKE)' systemd/debian/build '$(BUILD)' '$(VERSION)'
## make format lint     clang-format in place; cppcheck
format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
lint:
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,performance,portability -I. -DMRIRECON_VERSION='"x"' -DMRIRECON_CUDA='"x"' \
	  gridding recon daemon clients
## make fuzz            build/fuzz/fuzz_* (clang, libFuzzer): tests/fuzz/test_fuzz.sh runs each for some seconds, tests/fuzz/hour one for long
fuzz:
	@$(MAKE) --no-print-directory CC=clang SAN=1 CUDA=0 BUILD=$(BUILD)/fuzz CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' fuzzers
fuzzers: $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/lib/fuzzed.a: $(call objects,gridding/base/err.c recon/kinds.c $(addprefix recon/scan/,scan.c scan_builder.c scan_stream.c scan_xml.c) \
	daemon/base/options.c $(addprefix daemon/http/,digest.c http_parse.c idempotency.c tokens.c))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/lib/fuzzed.a
	$(link) -fsanitize=fuzzer $(call pkg,libxml-2.0 gnutls) -lm
## make clean
clean:
	rm -rf $(BUILD)

.PHONY: all unit bench fuzz fuzzers help demo check check-gpu check-deb deps install uninstall bundle deb format lint clean
.SECONDARY:
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
