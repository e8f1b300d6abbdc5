# What the Makefiles of both plugins share. $(call plugin,NAME,SOURCES,LIBRARIES)

COMMON = ../common/streams.cc
HEADERS = $(wildcard *.h ../common/*.h ../../crates/capi/include/*.h)

define plugin
.PHONY: all test clean
all: $$(OUT)/libonejournal_$(1).so $$(OUT)/files_test $$(OUT)/crash_test $$(OUT)/bench

$$(OUT):
	mkdir -p $$@

$$(OUT)/libonejournal_$(1).so: $(2) $$(COMMON) $$(HEADERS) | $$(OUT)
	$$(CXX) $$(CXXFLAGS) -shared -o $$@ $(2) $$(COMMON) -L$$(LIB) -lonejournal_log $(3) -Wl,-rpath,$$(LIB) -Wl,--no-undefined

$$(OUT)/files_test: files_test.cc database.cc ../common/files.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ files_test.cc database.cc ../common/files.cc $$(LDLIBS)

$$(OUT)/crash_test: crash_test.cc database.cc ../common/crash.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ crash_test.cc database.cc ../common/crash.cc $$(LDLIBS)

$$(OUT)/bench: bench.cc database.cc ../common/bench.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ bench.cc database.cc ../common/bench.cc $$(LDLIBS)

test: all
	$$(OUT)/files_test
	$$(OUT)/crash_test

clean:
	rm -rf $$(OUT)
endef
