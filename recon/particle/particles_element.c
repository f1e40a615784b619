/* The chemical elements. */
#include "recon/particle/particles.h"

#include <string.h>
#include <strings.h>

static const char symbols[][3] = {
    "",   "H",  "He", "Li", "Be", "B",  "C",  "N",  "O",  "F",  "Ne", "Na", "Mg", "Al", "Si", "P",  "S",
    "Cl", "Ar", "K",  "Ca", "Sc", "Ti", "V",  "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As",
    "Se", "Br", "Kr", "Rb", "Sr", "Y",  "Zr", "Nb", "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn",
    "Sb", "Te", "I",  "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm", "Sm", "Eu", "Gd", "Tb", "Dy", "Ho",
    "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W",  "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl", "Pb", "Bi", "Po",
    "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U",  "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md",
    "No", "Lr", "Rf", "Db", "Sg", "Bh", "Hs", "Mt", "Ds", "Rg", "Cn", "Nh", "Fl", "Mc", "Lv", "Ts", "Og",
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

int particle_element(const char *symbol, size_t length)
{
    for (int i = 1; i < SYMBOLS; i++)
        if (strlen(symbols[i]) == length && strncasecmp(symbols[i], symbol, length) == 0)
            return i;
    return length == 1 && (*symbol == 'D' || *symbol == 'd') ? 1 : 0; /* deuterium */
}

const char *particle_element_symbol(int number)
{
    return number > 0 && number < SYMBOLS ? symbols[number] : "";
}
