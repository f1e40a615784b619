# The web page, which npm builds; read by the Makefile. Everything else is built without npm, and runs without the page.
WEB         := $(BUILD)/share/mrirecond/web
WEB_MODULES := build/web
WEB_SOURCES := $(wildcard $(addprefix clients/web/,*.js *.jsx *.mjs *.css *.html *.svg licences/*))

# For the page and its test, which make check runs: npm comes with other packages of Node.js, too, that Debian's npm
# conflicts with.
DEPS_PAGE := chromium $(if $(shell command -v npm),,npm)

## make web             build the web page into build/share, with npm; install, bundle and deb take it along
web: $(WEB)/index.html
# make -j web bundle: the page first.
ifneq ($(filter web,$(MAKECMDGOALS)),)
install bundle deb: web
endif

# Programs are complete without the page, which needs npm; who packs them is told that it is not there.
no_page = @[ -e '$(WEB)/index.html' ] || echo 'The web page is left out, because it is not built: make web (npm).'

# The packages, of exactly the versions and checksums of package-lock.json. No script of theirs is run.
$(WEB_MODULES)/modules: clients/web/package.json clients/web/package-lock.json
	@mkdir -p $(@D)
	@cp $^ $(@D)
	$(call say,npm ci)cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1 || \
	  { cat npm.log; exit 1; }
	@touch $@
$(WEB)/index.html: $(WEB_SOURCES) $(WEB_MODULES)/modules
	@mkdir -p $(@D)
	$(call say,web page)node clients/web/build.mjs $(WEB_MODULES) $(WEB)

.PHONY: web
