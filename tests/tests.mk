# What builds and runs tests, benchmarks and fuzzers; read by the Makefile.
# The slowest programs first, here and below, so that none of them runs alone at the end.
UNIT     := $(addprefix $(BUILD)/tests/test_,mutants recon_parts ask scheduler_faults series cutcp_split op sums_heavy)
UNIT     += $(filter-out $(UNIT),$(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c)))
# Linked with the GPU's code itself.
GPU_LINKED := $(patsubst tests/gpu/%.cu,$(BUILD)/tests/%,$(wildcard tests/gpu/test_*.cu))
GPU_TESTS := $(patsubst tests/gpu/%.c,$(BUILD)/tests/%,$(wildcard tests/gpu/test_*.c)) $(GPU_LINKED)
FAULTS   := $(patsubst tests/faults/%.c,$(BUILD)/tests/%.so,$(wildcard tests/faults/*.c))
E2E      := $(patsubst %,tests/e2e/test_%.py,page page_forms page_again state diskfaults uploads_kept resources worker \
	device stop queue powercut faults writer batch events daemon_killed nbody clock operator cancel limits durable \
	client cutcp fulldisk kills simulate outbox worker_serve watch)
E2E      += $(filter-out $(E2E),$(wildcard tests/e2e/test_*.py))
# Sanitizers would find nothing in these that they do not find in the others: the documents' commands are also those
# of the tests of client and daemon, and browsers send what those of login, feed and views send. The library that
# durable preloads has to come before the sanitizers'.
E2E_PLAIN := $(patsubst %,tests/e2e/test_%.py,completion curl demo durable man page page_again page_forms plots readme \
	runner tutorial)
FUZZERS  := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCH    := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/bench_*.c))
# The thesis' experiments, on the CPU, and on the GPU if there is nvcc.
RIVALS     := $(call objects,$(wildcard tests/bench/rival_*.c))
RIVALS_GPU := $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(wildcard tests/bench/rival_*.cu))

# Tests read NIfTI back with the reference library.
$(BUILD)/obj/tests/%.o: override CFLAGS += -isystem /usr/include/nifti
# With sanitizers, -O1 takes three times as long to compile as no optimization, and -O2 four times: only tests whose own
# sums take most of their time gain.
SUMMING := $(patsubst %,$(BUILD)/obj/tests/unit/test_%.o,ask blob cutcp cutcp_split dcf dcf_pipe dcf_uneven iterative \
	maps nbody nufft nufft_parts plans range series stack sums sums_pairs traj)
ifeq ($(SAN),1)
$(BUILD)/obj/tests/unit/%.o: override CFLAGS += -O0
$(SUMMING): override CFLAGS += -O2
endif

# Its plain loops are optimized as the engine is, with which they are compared.
$(BUILD)/obj/tests/bench/bench_sums.o: override CFLAGS += -O3

$(UNIT) $(BENCH) $(GPU_TESTS) $(FUZZERS): $(BUILD)/flags/link
# mrirecon-gpu.so calls functions of the program that loads it. The linker omits those that the program itself does not
# call, unless told otherwise; tests/check_includes checks that no program lacks any.
GPU_HOST := -Wl,-u,overflow_choose
# gold links a test program in a third of the processor time. What is installed has the usual linker.
QUICK_LINK := $(if $(shell command -v ld.gold),-fuse-ld=gold)
$(BUILD)/tests/%: $(BUILD)/obj/tests/unit/%.o $(BUILD)/lib/clients.a $(ARCHIVES)
	$(link) $(QUICK_LINK) $(GPU_HOST) -lcmocka -lniftiio -lznz $(LIBS_CLIENT) $(LIBS_DAEMON) $(LIBS_RECON) \
	  $(LIBS_GRIDDING) $(call pkg,fftw3)
$(BUILD)/tests/test_rival $(BUILD)/tests/test_rival_range: $(RIVALS)
$(filter-out $(GPU_LINKED),$(GPU_TESTS)): $(BUILD)/tests/%: $(BUILD)/obj/tests/gpu/%.o $(BUILD)/lib/recon.a \
		$(BUILD)/lib/gridding.a
	$(link) $(QUICK_LINK) $(GPU_HOST) -lcmocka $(LIBS_RECON) $(LIBS_GRIDDING)
# nvcc links it: it knows where its own run-time library lies, also when the nvcc in PATH is a script that calls
# another.
THESIS := $(call objects,$(wildcard tests/bench/thesis_*.c))
$(BUILD)/bench/mrirecond-bench: $(THESIS) $(RIVALS) $(RIVALS_GPU) $(BUILD)/lib/gridding.a
	@mkdir -p $(@D)
	$(call say,link $@)$(NVCC) -cudart static -o $@ $(filter %.o,$^) $(filter %.a,$^) \
	  $(addprefix -Xlinker ,--as-needed --export-dynamic) -Xcompiler -fopenmp $(LIBS_GRIDDING) -ldl
$(BUILD)/bench/bench_fft: $(BUILD)/obj/tests/bench/bench_fft.cu.o
$(GPU_LINKED): $(BUILD)/tests/%: $(BUILD)/obj/tests/gpu/%.cu.o
$(BUILD)/bench/bench_fft $(GPU_LINKED): $(GPU_OBJECTS) $(BUILD)/lib/gridding.a
	@mkdir -p $(@D)
	$(call say,link $@)$(NVCC) -cudart static -o $@ $(filter %.o,$^) $(filter %.a,$^) -Xcompiler -fopenmp \
	  $(addprefix -Xlinker ,--export-dynamic -u overflow_choose) $(LIBS_GRIDDING) -ldl
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(ARCHIVES)
	$(link) $(QUICK_LINK) $(GPU_HOST) $(LIBS_RECON) $(LIBS_GRIDDING)

## make unit            build the unit tests; tests/run build/tests/test_* runs them
# The programs with the tables of tests/kinds/ in place of the product's: with a second kind of job.
KINDS := $(addprefix $(BUILD)/kinds/,mrirecond mrirecon-worker mrirecon-codec)
kind_objects = $(patsubst %,$(BUILD)/obj/tests/kinds/%.o,kinds_table histogram/histogram_kind $(1))
$(KINDS): $(BUILD)/flags/link
$(BUILD)/kinds/mrirecond: $(BUILD)/obj/daemon/daemon_main.o $(kind_objects) $(ARCHIVES)
	$(link) $(LIBS_DAEMON)
$(BUILD)/kinds/mrirecon-worker: $(BUILD)/obj/daemon/worker/worker_main.o \
		$(call kind_objects,kind_runs histogram/histogram_run) $(ARCHIVES)
	$(link) $(LIBS_RECON) $(LIBS_GRIDDING)
$(BUILD)/kinds/mrirecon-codec: $(BUILD)/obj/recon/codec/codec_main.o \
		$(call kind_objects,codec_formats histogram/histogram_codec) $(BUILD)/lib/recon.a $(BUILD)/lib/gridding.a
	$(link) $(LIBS_CODEC)

unit: $(UNIT) $(KINDS)
## make bench           build the benchmarks into build/bench
bench: $(BENCH) $(if $(GPU),$(addprefix $(BUILD)/bench/,mrirecond-bench bench_fft)) all

# Without a GPU the output of nvcc cannot run. One architecture, without the optimizations that take two thirds of the
# time, shows whether it compiles and links. Builds for all architectures are kept.
GPU_DEVICE ?= $(wildcard /dev/nvidia0)
all_archs   = $(if $(subst x$(flags_nvcc),,x$(file <$(BUILD)/flags/nvcc)),,yes)
nvcc_quick  = -O1 $(if $(findstring --Ofast-compile,$(shell $(NVCC) --help)),--Ofast-compile=max)
CHECK_CUDA  = $(if $(GPU_DEVICE)$(all_archs),,CUDA_ARCHS=$(firstword $(CUDA_ARCHS)) NVCC_OPTIMIZE='$(nvcc_quick)')
## make openapi         write the parameters and steps of the kinds of job into docs/openapi.yaml
openapi: all
	@MRIRECON_BIN=$(BUILD)/bin tests/e2e/openapi_kinds.py
## make check           install dependencies, build with gcc, clang and sanitizers, run every test
check: deps
	@scripts/deps $(DEPS_PAGE) dcmtk stunnel4
	@$(MAKE) --no-print-directory -j$$(($$(nproc) + 1)) check_builds
	@tests/run $(CHECKS) MRIRECON_BIN=$(BUILD)/san/bin $(filter-out $(E2E_PLAIN),$(E2E)) \
	  MRIRECON_BIN=$(BUILD)/bin $(E2E) \
	  $(foreach b,$(BUILD)/san $(BUILD)/clang $(BUILD),MRIRECON_BIN=$(b)/bin $(UNIT:$(BUILD)/%=$(b)/%))
CHECKS     := $(addprefix tests/,check_includes check_docs check_make check_units check_security) \
	$(wildcard tests/fuzz/test_*)
# Programs that the daemon works with: Prometheus reads its metrics, and a PACS takes its images.
SERVICES := $(BUILD)/prometheus/usr/bin/prometheus $(BUILD)/orthanc/usr/sbin/Orthanc
$(BUILD)/prometheus/%:
	@scripts/unpack $(BUILD)/prometheus prometheus
$(BUILD)/orthanc/%: | $(firstword $(SERVICES)) # apt-get does not run twice at a time
	@scripts/unpack $(BUILD)/orthanc orthanc orthanc-dicomweb
# One make for all of them, so that the processors need not wait for the last program of each, nor for the network.
check_builds: check_gcc check_clang check_san fuzz check_web $(SERVICES)
check_gcc:
	@$(MAKE) --no-print-directory $(CHECK_CUDA) all unit bench \
	  $(if $(GPU),$(BUILD)/tests/poison.so $(GPU_TESTS))
check_clang:
	@$(MAKE) --no-print-directory CC=clang CFLAGS=-O2 BUILD=$(BUILD)/clang CUDA=0 all unit
check_san:
	@$(MAKE) --no-print-directory SAN=1 BUILD=$(BUILD)/san CUDA=0 all unit
check_web:
	@$(MAKE) --no-print-directory web || echo 'no web page: its test will be skipped'
## make check-gpu       test the GPU code, and the daemon from the bundle, on a machine with a GPU
check-gpu: bundle bench $(GPU_TESTS) $(BUILD)/tests/poison.so
	MRIRECON_POISON_SO=$(BUILD)/tests/poison.so \
	  tests/run $(GPU_TESTS) MRIRECON_BIN=$(BUILD)/bundle/bin tests/gpu/test_daemon.py
	$(BUILD)/bench/mrirecond-bench --sets tiny,cutcp-tiny,blob-tiny,nbody-tiny --runs 1 >/dev/null
# Preloaded into a daemon to simulate a power cut, a failing disk or a clock that jumps, or loaded by a worker as a GPU
# that fails; built without sanitizers.
$(FAULTS): $(BUILD)/tests/%.so: tests/faults/%.c $(BUILD)/flags/compile
	@mkdir -p $(@D) $(BUILD)/obj/tests/faults
	$(call say,$(CC) $<)$(CC) -std=c17 -O2 -I. -fPIC -shared -Wall -Wextra -Werror -MMD -MP \
	  -MF $(BUILD)/obj/tests/faults/$*.d -o $@ $< -ldl
# Built with the programs: a test that is started by hand would fail with an older one.
all: $(FAULTS)
$(BUILD)/tests/poison.so $(BUILD)/tests/launches.so: $(BUILD)/tests/%.so: $(BUILD)/obj/tests/gpu/%.cu.o
	@mkdir -p $(@D)
	$(call say,link $@)$(NVCC) -shared -cudart static -o $@ $^
## make check-deb       test the Debian package in a container: install, boot, upgrade, purge (as root)
check-deb:
	@scripts/deps debootstrap lintian systemd-container $(if $(shell command -v npm),,npm)
	@$(MAKE) --no-print-directory web || echo 'no web page: its test will be skipped'
	@$(MAKE) --no-print-directory deb
	tests/run MRIRECON_BIN=$(BUILD)/bin tests/deb.sh
## make fuzz            build the fuzzers, build/fuzz/fuzz_*, for tests/fuzz/test_fuzz.sh and tests/fuzz/hour
fuzz:
	@$(MAKE) --no-print-directory CC=clang SAN=1 CUDA=0 BUILD=$(BUILD)/fuzz \
	  CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' fuzzers
fuzzers: $(FUZZERS)
$(BUILD)/lib/fuzzed.a: $(call objects,gridding/base/err.c recon/kinds.c recon/kinds_table.c recon/view.c \
	recon/result_file.c recon/codec/sealed.c $(wildcard recon/*/*_kind.c) \
	$(addprefix recon/image/,image.c image_formats.c picture.c) $(wildcard recon/mesh/*.c) \
	$(addprefix recon/volume/volume,.c _formats.c _npy.c) \
	$(addprefix recon/particle/particles,.c _builder.c _element.c _gadget.c _npy.c _pqr.c _sniff.c _table.c _text.c) \
	$(addprefix recon/scan/,scan.c scan_array.c scan_arrays.c scan_builder.c scan_npz.c scan_pixels.c \
	scan_sniff.c scan_stream.c mrd_frame.c mrd_readout.c scan_xml.c zip.c) \
	$(addprefix daemon/base/,disk.c options.c) \
	$(addprefix daemon/http/,digest.c http_fields.c http_parse.c idempotency.c submission.c tokens.c) \
	$(addprefix daemon/mrd/,mrd_clients.c mrd_config.c) daemon/store/job.c) tests/tests.mk
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/lib/fuzzed.a
	$(link) -fsanitize=fuzzer $(call pkg,libxml-2.0 gnutls jansson libpng zlib libisal) -lm

.PHONY: unit bench openapi fuzz fuzzers check check_builds check_gcc check_clang check_san check_web check-gpu check-deb
