# mrirecond: build, test, install.   make help
#   CC=gcc|clang   CUDA=auto|0|1   FFTW=0 (no CPU path)   SAN=1 (address, undefined behaviour)   BUILD=folder
#   DESTDIR= PREFIX=     tests/tests.mk: what builds and runs tests     clients/web/web.mk: the web page
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
	cppcheck libmicrohttpd-dev libgnutls28-dev libismrmrd-dev ismrmrd-schema libhdf5-dev libxml2-dev libfftw3-dev \
	libsqlite3-dev libjansson-dev libcurl4-gnutls-dev libpng-dev zlib1g-dev libisal-dev libnifti-dev libqhull-dev \
	libseccomp-dev libsystemd-dev libcmocka-dev dicom3tools dpkg-dev mandoc zsh python3 python3-numpy python3-h5py \
	python3-yaml

PACKAGES := libmicrohttpd gnutls sqlite3 jansson libxml-2.0 hdf5-serial fftw3f libpng zlib libisal libseccomp \
	libsystemd libcurl
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
# With sanitizers, -O1 compiles in half the time (gridding/ and some tests' own sums run long enough for -O2), and
# of the debug information a report needs only the line numbers.
CFLAGS   ?= $(if $(filter 1,$(SAN)),-O1 -g1,-O2 -g)
override CFLAGS := $(CFLAGS) -std=c17 -D_GNU_SOURCE -I. -fopenmp -fno-math-errno -fstack-protector-strong -MMD -MP \
	$(WARN) -DMRIRECON_VERSION='"$(VERSION)"' \
	$(shell pkg-config --cflags $(PACKAGES) 2>/dev/null | sed 's/-I/-isystem /g')
override LDFLAGS := $(LDFLAGS) -Wl,--as-needed -fopenmp -rdynamic
ifeq ($(SAN),1)
# -w: at -O1 GCC warns of what it would see to be impossible at -O2. Warnings are errors in all other builds.
# AddressSanitizer reports what null and object-size would; with them, sums take a quarter to a third more time.
override CFLAGS  += -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -w
override LDFLAGS += -fsanitize=address,undefined
endif

# make V=1 shows whole commands.
say = $(if $(V),,@echo '$(1)' &&) 

pkg = $(shell pkg-config --libs $(1) 2>/dev/null)
LIBS_GRIDDING = $(call pkg,qhull_r) $(if $(filter 0,$(FFTW)),,$(call pkg,fftw3f)) -lm
LIBS_RECON    = -lismrmrd $(call pkg,hdf5-serial) $(call pkg,libxml-2.0 libpng zlib libisal libseccomp jansson)
# The codec has libhdf5 in itself, where its archive is there: the shared one brings curl, OpenSSL and Kerberos, which
# the process that reads uploads has no use for, and of which three quarters of its start consisted (7.0 ms of processor
# time, 1.6 without).
HDF5_ARCHIVE  = $(firstword $(wildcard $(patsubst -L%,%/libhdf5.a,$(filter -L%,$(call pkg,hdf5-serial)))))
LIBS_CODEC    = $(if $(HDF5_ARCHIVE),$(patsubst -lhdf5,$(HDF5_ARCHIVE) -lsz,$(LIBS_RECON)),$(LIBS_RECON)) -lm
LIBS_DAEMON   = $(call pkg,libmicrohttpd gnutls sqlite3 libsystemd jansson) -lm
LIBS_CLIENT   = $(call pkg,libcurl jansson)
LIBS_SEND     = $(call pkg,libcurl gnutls jansson libseccomp)

# A program is one *_main.c; everything else of a room is its archive.
OTHER_FFT := gridding/fft/$(if $(filter 0,$(FFTW)),fft_cpu,fft_none).c
sources  = $(filter-out %_main.c $(OTHER_FFT),$(foreach d,$(1),$(wildcard $(d)/*.c)))
rooms    = $(patsubst %/,%,$(wildcard $(1)/*/))
objects  = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GRIDDING := $(call objects,$(call sources,gridding $(call rooms,gridding)))
RECON    := $(call objects,$(call sources,recon $(call rooms,recon)))
DAEMON   := $(call objects,$(call sources,daemon $(call rooms,daemon)))
CLIENTS  := $(call objects,$(call sources,clients))
ARCHIVES := $(BUILD)/lib/daemon.a $(BUILD)/lib/recon.a $(BUILD)/lib/gridding.a
GPU_SO   := $(BUILD)/lib/mrirecon/mrirecon-gpu.so
BIN      := $(addprefix $(BUILD)/bin/,mrirecond mrirecon-worker mrirecon-codec mrirecon-send mrirecon)
# GPU leaves: machine code for compute capability 8.0 (which 8.6 and 8.9 run, too), 9.0 and newer, and PTX for what
# comes after.
ifneq ($(CUDA),0)
GPU := $(if $(or $(NVCC),$(filter 1,$(CUDA))),$(GPU_SO))
endif
CUDA_ARCHS ?= 80 90 100 120
GPU_SOURCES := $(foreach d,$(call rooms,gridding) gridding/nufft/gpu gridding/range/gpu,$(wildcard $(d)/*.cu))
GPU_OBJECTS := $(GPU_SOURCES:%.cu=$(BUILD)/obj/%.cu.o)
NVCC_OPTIMIZE ?= -O3
NVCCFLAGS := -std=c++17 $(NVCC_OPTIMIZE) -I. -MMD -MP -Xcompiler -fPIC,-Wall,-Wextra -Werror all-warnings \
	$(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a)) \
	-gencode=arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))

MAN        := $(patsubst docs/man/%,$(BUILD)/man/%,$(wildcard docs/man/*.[158]))
COMPLETION := $(addprefix $(BUILD)/completion/mrirecon.,bash zsh)

all: $(BIN) $(GPU) $(MAN) $(COMPLETION)

# What is built knows its flags: the files in flags/ are written anew where they have changed, and what depends on them
# is built again. A GPU's part of another build goes.
CUDA_RELEASE   = $(shell $(NVCC) --version | sed -n 's/.* release \([0-9.]*\),.*/\1/p')
flags_compile := $(CC) $(CFLAGS)
flags_link    := $(CC) $(LDFLAGS) $(LIBS_CODEC) $(LIBS_DAEMON) $(LIBS_CLIENT) $(LIBS_GRIDDING)
flags_nvcc    := $(NVCC) $(NVCCFLAGS)
flags_cuda    := $(if $(GPU),$(CUDA_RELEASE),none)
$(addprefix $(BUILD)/flags/,compile link nvcc cuda): $(BUILD)/flags/%: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(flags_$*))' >$@.now
	@cmp -s $@.now $@ && rm $@.now || { $(if $(filter cuda,$*),rm -f $(GPU_SO);) mv $@.now $@; }

# The options of the configuration are written into its page.
$(BUILD)/man/%: docs/man/% docs/man/page.awk $(BUILD)/bin/mrirecond
	@mkdir -p $(@D)
	$(call say,page $<)$(BUILD)/bin/mrirecond --sample-config | \
	  awk -v version=$(VERSION) -f docs/man/page.awk - $< >$@

$(BUILD)/completion/mrirecon.%: $(BUILD)/bin/mrirecon
	@mkdir -p $(@D)
	$(call say,completion for $*)$< completion $* >$@

$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/flags/nvcc
	@mkdir -p $(@D)
	$(call say,nvcc $<)$(or $(NVCC),$(error CUDA=1 and no nvcc: set NVCC)) $(NVCCFLAGS) -c -o $@ $<
$(GPU_SO): $(GPU_OBJECTS) $(BUILD)/flags/cuda
	@mkdir -p $(@D)
	$(NVCC) -shared -cudart static -Xcompiler -static-libstdc++,-static-libgcc -o $@ $(filter %.o,$^)
$(BUILD)/obj/%.o: %.c $(BUILD)/flags/compile
	@mkdir -p $(@D)
	$(call say,$(CC) $<)$(CC) $(CFLAGS) -c -o $@ $<
# For the metric that tells which build runs.
$(BUILD)/obj/daemon/queue/metrics.o: $(BUILD)/flags/cuda
$(BUILD)/obj/daemon/queue/metrics.o: override CFLAGS += -DMRIRECON_CUDA='"$(flags_cuda)"'
# Leaves compiled for one instruction set each; chosen at run time.
$(BUILD)/obj/%_avx2.o: override CFLAGS += -mavx2 -mfma
$(BUILD)/obj/%_avx512.o: override CFLAGS += -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mprefer-vector-width=512
$(BUILD)/obj/gridding/%.o: override CFLAGS += $(if $(filter 1,$(SAN)),-O2,-O3) -ffp-contract=fast -Wno-psabi
# A third of the time to compile these would go into debug information beyond lines.
$(BUILD)/obj/gridding/range/points_%.o: override CFLAGS += -g1
$(BUILD)/lib/gridding.a: $(GRIDDING)
$(BUILD)/lib/recon.a: $(RECON)
$(BUILD)/lib/daemon.a: $(DAEMON)
$(BUILD)/lib/clients.a: $(CLIENTS)
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	@rm -f $@
	@ar rcs $@ $(filter %.o,$^)

$(BIN): $(BUILD)/flags/link
link = @mkdir -p $(@D) && echo "link $@" && $(CC) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS)
$(BUILD)/bin/mrirecond: $(BUILD)/obj/daemon/daemon_main.o $(ARCHIVES)
	$(link) $(LIBS_DAEMON)
$(BUILD)/bin/mrirecon-worker: $(BUILD)/obj/daemon/worker/worker_main.o $(ARCHIVES)
	$(link) $(LIBS_RECON) $(LIBS_GRIDDING)
$(BUILD)/bin/mrirecon-codec: $(BUILD)/obj/recon/codec/codec_main.o $(BUILD)/lib/recon.a $(BUILD)/lib/gridding.a
	$(link) $(LIBS_CODEC)
$(BUILD)/bin/mrirecon: $(BUILD)/obj/clients/client_main.o $(BUILD)/lib/clients.a $(ARCHIVES)
	$(link) $(LIBS_CLIENT) $(LIBS_RECON) $(LIBS_GRIDDING)
$(BUILD)/bin/mrirecon-send: $(BUILD)/obj/daemon/send/send_main.o $(ARCHIVES)
	$(link) $(LIBS_SEND)
include clients/web/web.mk
# ---- for people ----
help:
	@sed -n 's/^## //p' Makefile clients/web/web.mk tests/tests.mk
## make                 build the programs into build/bin; CUDA=0: without the GPU code
## make demo [SCAN=f] [KIND=kind of job]   install dependencies, build, run a job on a simulated input (or the file f),
##                      save demo.png
demo: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(if $(KIND),KIND='$(KIND)' )tests/demo.sh '$(BUILD)' $(if $(SCAN),'$(SCAN)')
## make deps            install the Debian packages that are missing
deps:
	@scripts/deps $(DEPS)
## make install         install into $(DESTDIR)$(PREFIX); make uninstall removes it
install: all
	scripts/install '$(BUILD)' '$(DESTDIR)' '$(PREFIX)' '$(GPU)'
	$(no_page)
uninstall:
	scripts/install --remove '$(DESTDIR)' '$(PREFIX)'
## make bundle          build/bundle: programs with their libraries, for a Linux with nothing installed
bundle: all
	scripts/bundle $(BUILD)/bundle '$(GPU)' $(BIN)
	$(no_page)
## make deb             build the Debian package, build/mrirecond_VERSION_ARCH.deb
deb: all
	+@MAKE='$(MAKE)' systemd/debian/build '$(BUILD)' '$(VERSION)'
	$(no_page)
## make format          format the code with clang-format; make lint checks it with cppcheck
format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')
lint:
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --enable=warning,performance,portability -I. \
	  -DMRIRECON_VERSION='"x"' -DMRIRECON_CUDA='"x"' gridding recon daemon clients
## make clean           remove build/
clean:
	rm -rf $(BUILD)

.PHONY: FORCE all help demo deps install uninstall bundle deb format lint clean
.SECONDARY:
include tests/tests.mk
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
