# page.awk: fills the template of a manual page. First file: the output of `mrirecond --sample-config`, in which each
# option is a comment paragraph that ends in a line "#key = default"; the options replace the line @OPTIONS@.
function roff(text) { gsub(/--/, "\\-\\-", text); sub(/^[.']/, "\\\\\\&&", text); return text }
FNR == NR && /^# / { help = help roff(substr($0, 3)) "\n"; next }
FNR == NR && /^#[a-z]/ {
    key = value = substr($0, 2)
    sub(/ *=.*/, "", key)
    sub(/^[^=]*= */, "", value)
    gsub(/-/, "\\-", key)
    options = options ".TP\n.BR " key (value == "" ? "" : " \" (" value ")\"") "\n" help
}
FNR == NR { help = ""; next }
$0 == "@OPTIONS@" { printf "%s", options; next }
{ gsub(/@VERSION@/, version); print }
