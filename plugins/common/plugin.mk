# What the Makefiles of both plugins share. $(call plugin,NAME,SOURCES,LIBRARIES)
# At run time a plugin finds libonejournal_log.so.0 beside itself, here and where it is installed.

COMMON = ../common/streams.cc
HEADERS = $(wildcard *.h ../common/*.h ../../crates/capi/include/*.h)

define plugin
.PHONY: all test clean
all: $$(OUT)/libonejournal_$(1).so $$(OUT)/files_test $$(OUT)/crash_test $$(OUT)/session $$(OUT)/bench

$$(OUT):
	mkdir -p $$@

$$(OUT)/libonejournal_$(1).so: $(2) $$(COMMON) $$(HEADERS) | $$(OUT)
	$$(CXX) $$(CXXFLAGS) -shared -o $$@ $(2) $$(COMMON) -L$$(LIB) -lonejournal_log $(3) -Wl,-soname,libonejournal_$(1).so.0 -Wl,-rpath,'$$$$ORIGIN' -Wl,--no-undefined
	ln -sf libonejournal_$(1).so $$@.0
	ln -sf $$(LIB)/libonejournal_log.so $$(OUT)/libonejournal_log.so.0

$$(OUT)/files_test: files_test.cc database.cc ../common/files.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ files_test.cc database.cc ../common/files.cc $$(LDLIBS)

$$(OUT)/crash_test: crash_test.cc database.cc ../common/crash.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ crash_test.cc database.cc ../common/crash.cc $$(LDLIBS)

$$(OUT)/session: session.cc database.cc ../common/session.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ session.cc database.cc ../common/session.cc $$(LDLIBS)

$$(OUT)/bench: bench.cc database.cc ../common/bench.cc $$(HEADERS) $$(OUT)/libonejournal_$(1).so
	$$(CXX) $$(CXXFLAGS) -o $$@ bench.cc database.cc ../common/bench.cc $$(LDLIBS)

test: all
	$$(OUT)/files_test
	$$(OUT)/crash_test

clean:
	rm -rf $$(OUT)
endef
