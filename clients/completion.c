/* Completion of the command line in bash and zsh, from the tables of commands, options and kinds. */
#include "clients/commands.h"
#include "clients/simulate_options.h"
#include "recon/recon.h"

#include <stdio.h>
#include <string.h>

static bool takes(const struct command_tables *tables, const struct command_row *command, const struct option_row *row)
{
    return command->run && (row->bit & (command->options | tables->everywhere)) != 0;
}

/* Whether a command's arguments are parameters, after a file or folder. */
static bool has_parameters(const struct command_row *command)
{
    return strstr(command->words, "PARAM=VALUE") != NULL;
}

/* Call `print` for each result of the table of kinds, and whether it is the first of its name, or of its form. */
static void each_result(void (*print)(const struct kind_result *result, bool first_name, bool first_form))
{
    for (const struct kind *const *of = kinds; *of; of++)
        for (const struct kind_result *result = (*of)->results; result->name; result++) {
            bool first_name = true, first_form = true;
            for (const struct kind *const *before = kinds; before <= of; before++)
                for (const struct kind_result *other = (*before)->results; other->name && other != result; other++) {
                    first_name &= strcmp(other->name, result->name) != 0;
                    first_form &= other->form != result->form;
                }
            print(result, first_name, first_form);
        }
}

static void result_print(const struct kind_result *result, bool first_name, bool first_form)
{
    (void)first_form;
    if (first_name)
        printf(" %s", result->name);
}

static void formats_print(const struct kind_result *result, bool first_name, bool first_form)
{
    (void)first_name;
    for (int i = 0; first_form && result->form->formats[i].name; i++)
        printf(" %s", result->form->formats[i].name);
}

/* Print the possible values of an option or an argument, each after a space; nothing if any text is possible. */
static void values_print(const char *value)
{
    if (strcmp(value, "FORM") == 0)
        each_result(formats_print);
    else if (strcmp(value, "RESULT") == 0)
        each_result(result_print);
    else if (strcmp(value, "KIND") == 0 || strcmp(value, "[KIND]") == 0)
        for (const struct kind *const *of = kinds, *kind; (kind = *of); of++)
            printf(" %s", kind->name);
    else if (strcmp(value, "P") == 0)
        printf(" urgent normal batch");
    else if (strcmp(value, "STATE") == 0)
        printf(" queued running canceling succeeded failed canceled");
    else if (strcmp(value, "SHELL") == 0)
        printf(" bash zsh");
}

/* Whether a kind before `kind` has a parameter of that name. */
static bool is_repeated(const struct kind *kind, const char *name)
{
    for (const struct kind *const *of = kinds; *of != kind; of++)
        for (const struct param *param = (*of)->params; param->name; param++)
            if (strcmp(param->name, name) == 0)
                return true;
    return false;
}

static void completion_parameters_print(void)
{
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++)
        for (const struct param *param = kind->params; param->name; param++)
            if (!is_repeated(kind, param->name))
                printf(" %s=", param->name);
}

/* A case for each parameter with a list of values, within `case NAME in`; `print` passes the list to the shell. */
static void choices_print(const char *before, const char *after)
{
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++)
        for (const struct param *param = kind->params; param->name; param++) {
            if (!param->choices)
                continue;
            printf("    %s) %s", param->name, before);
            for (const char *const *choice = param->choices; *choice; choice++)
                printf(" %s", *choice);
            printf("%s ;;\n", after);
        }
}

/* ---- bash ---- */

static void bash_option_values(const struct command_tables *tables)
{
    for (const struct option_row *row = tables->options; row < tables->options + tables->option_count; row++) {
        if (!row->value)
            continue;
        printf("    %s) ", row->name);
        if (strcmp(row->value, "FILE") == 0) {
            printf("files=-f ;;\n");
        } else {
            printf("words='");
            values_print(row->value);
            printf("' ;;\n");
        }
    }
}

static void bash_command(const struct command_tables *tables, const struct command_row *command)
{
    printf("    %s)\n        options='--help", command->name);
    for (const struct option_row *row = tables->options; row < tables->options + tables->option_count; row++)
        if (takes(tables, command, row))
            printf(" %s", row->name);
    for (int i = 0; strcmp(command->name, "simulate") == 0 && simulate_option_name(i); i++)
        printf(" --%s", simulate_option_name(i));
    printf("'\n        words='");
    values_print(command->words);
    if (has_parameters(command))
        completion_parameters_print();
    printf("'\n");
    if (strncmp(command->words, "SCAN", 4) == 0)
        printf("        files=-f\n");
    else if (strncmp(command->words, "DIR", 3) == 0)
        printf("        files=-d\n");
    printf("        ;;\n");
}

static void bash_print(const struct command_tables *tables)
{
    puts("# Completion of mrirecon in bash, as `mrirecon completion bash` prints it.\n"
         "_mrirecon() {\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= options= words= "
         "files= i\n"
         "    COMPREPLY=()\n"
         "    # An = is a word of its own.\n"
         "    if [[ $word == = ]]; then\n"
         "        word=\n"
         "    elif [[ $before == = ]]; then\n"
         "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    elif [[ $before != --* ]]; then\n"
         "        before=\n"
         "    fi\n"
         "    case $before in");
    bash_option_values(tables);
    choices_print("words='", "'");
    puts("    *) before= ;;\n"
         "    esac\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        [[ -n $command || ${COMP_WORDS[i]} == -* || ${COMP_WORDS[i - 1]} == -* ]] || "
         "command=${COMP_WORDS[i]}\n"
         "    done\n"
         "    [[ -n $before ]] || case $command in\n"
         "    '')\n"
         "        options='--help --version --server --token-file --cacert'");
    printf("        words='");
    for (int i = 0; i < tables->command_count; i++)
        printf(" %s", tables->commands[i].name);
    puts("'\n        ;;");
    for (int i = 0; i < tables->command_count; i++)
        bash_command(tables, &tables->commands[i]);
    puts("    esac\n"
         "    [[ $word != -* || -n $before ]] || words=$options files=\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\"; [[ -z $files ]] || compgen $files -- "
         "\"$word\")\n"
         "    [[ -z $files ]] || compopt -o filenames 2>/dev/null\n"
         "    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null\n"
         "}\n"
         "complete -F _mrirecon mrirecon");
}

/* ---- zsh ---- */

/* Text within single quotes; characters that _arguments and _describe interpret are escaped. */
static void zsh_quote(const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            printf("'\\''");
        else
            printf("%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
}

static void zsh_option(const struct option_row *row)
{
    printf(" \\\n            '%s%s[", row->name, row->value ? "=" : "");
    zsh_quote(row->help);
    printf("]");
    if (row->value)
        printf(":%s:", row->value);
    if (row->value && strcmp(row->value, "FILE") == 0) {
        printf("_files");
    } else if (row->value) {
        printf("(");
        values_print(row->value);
        printf(")");
    }
    printf("'");
}

static void zsh_command(const struct command_tables *tables, const struct command_row *command)
{
    printf("    %s)\n        _arguments", command->name);
    for (const struct option_row *row = tables->options; row < tables->options + tables->option_count; row++)
        if (takes(tables, command, row))
            zsh_option(row);
    for (int i = 0; strcmp(command->name, "simulate") == 0 && simulate_option_name(i); i++)
        printf(" \\\n            '--%s:value:_files'", simulate_option_name(i));
    printf(" \\\n            '--help[tell more]' '*:");
    if (strncmp(command->words, "SCAN", 4) == 0)
        printf("scan or parameter:{_files; _mrirecon_parameters}'\n");
    else if (strncmp(command->words, "DIR", 3) == 0)
        printf("folder or parameter:{_files -/; _mrirecon_parameters}'\n");
    else if (has_parameters(command))
        printf("parameter:_mrirecon_parameters'\n");
    else {
        printf("word:(");
        values_print(command->words);
        printf(")'\n");
    }
    printf("        ;;\n");
}

static void zsh_print(const struct command_tables *tables)
{
    puts("#compdef mrirecon\n"
         "# Completion of mrirecon in zsh, as `mrirecon completion zsh` prints it.\n"
         "compdef _mrirecon mrirecon\n"
         "_mrirecon_parameters() {\n"
         "    if compset -P '*='; then\n"
         "    case ${IPREFIX%=} in");
    choices_print("compadd --", "");
    printf("    esac\n    else\n        compadd -S '' --");
    completion_parameters_print();
    puts("\n    fi\n}\n"
         "_mrirecon() {\n"
         "    local -a commands\n"
         "    commands=(");
    for (int i = 0; i < tables->command_count; i++) {
        printf("        '%s:", tables->commands[i].name);
        zsh_quote(tables->commands[i].help);
        puts("'");
    }
    puts("    )\n"
         "    if ((CURRENT == 2)); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    local command=$words[2]\n"
         "    shift words\n"
         "    ((CURRENT--))\n"
         "    case $command in");
    for (int i = 0; i < tables->command_count; i++)
        zsh_command(tables, &tables->commands[i]);
    puts("    esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _mrirecon ]; then _mrirecon \"$@\"; fi");
}

int completion_print(const char *shell, const struct command_tables *tables)
{
    if (strcmp(shell, "bash") == 0)
        bash_print(tables);
    else if (strcmp(shell, "zsh") == 0)
        zsh_print(tables);
    else
        return client_usage("completion is for bash and zsh, not for \"%s\".", shell);
    return fflush(stdout) == 0 ? CLIENT_OK : CLIENT_FAILED;
}
