#include "recon/particle/radii.h"

/* By atomic number, hundredths of an angstrom; 0: in neither source. */
static const unsigned short radii[] = {
    0,   110, 140,                                                                            /* H He */
    181, 153, 192, 170, 155, 152, 147, 154,                                                   /* Li .. Ne */
    227, 173, 184, 210, 180, 180, 175, 188,                                                   /* Na .. Ar */
    275, 231, 258, 246, 242, 245, 245, 244, 240, 240, 238, 239, 187, 211, 185, 190, 183, 202, /* K .. Kr */
    303, 249, 275, 252, 256, 245, 244, 246, 244, 215, 253, 249, 193, 217, 206, 206, 198, 216, /* Rb .. Xe */
    343, 268,                                                                                 /* Cs Ba */
    298, 288, 292, 295, 0,   290, 287, 283, 279, 287, 281, 283, 279, 280, 274,                /* La .. Lu */
    263, 253, 257, 249, 248, 241, 229, 232, 245, 196, 202, 207, 197, 202, 220,                /* Hf .. Rn */
    348, 283,                                                                                 /* Fr Ra */
    280, 293, 288, 271, 282, 281, 283, 305, 340, 305, 270,                                    /* Ac .. Es */
};

double particle_radius(int number)
{
    return number > 0 && number < (int)(sizeof radii / sizeof *radii) ? radii[number] / 100.0 : 0;
}
