#!/usr/bin/python3
"""A protein-like molecule for tests and the demo: two alpha helices of poly-alanine side by side, as PDB on stdout.

    tests/molecule.py [RESIDUES]

Atoms lie on cylinders about the axis of each helix: 100 degrees and 1.5 angstroms from a residue to the next."""
import math
import sys

# Name, element, distance from the axis, angle and height within the residue.
ATOMS = (("N", "N", 1.55, -28.0, -0.87), ("CA", "C", 2.28, 0.0, 0.0), ("C", "C", 1.66, 26.0, 1.13), ("O", "O", 2.02, 22.0, 2.34), ("CB", "C", 3.30, -19.0, 0.61))


def molecule(residues=24):
    """Lines of a PDB file."""
    number = 0
    for chain, across, down in (("A", 0.0, 1), ("B", 9.5, -1)):
        for residue in range(residues):
            for name, element, radius, angle, height in ATOMS:
                turn, z = math.radians(100 * residue + angle), 1.5 * residue + height
                if down < 0:  # the second runs the other way: turned about x
                    turn, z = -turn, 1.5 * residues - z
                x, y = across + radius * math.cos(turn), radius * math.sin(turn)
                number += 1
                yield f"ATOM  {number:5d}  {name:<3s} ALA {chain}{residue + 1:4d}    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00          {element:>2s}"
    yield "END"


if __name__ == "__main__":
    print("\n".join(molecule(*map(int, sys.argv[1:]))))
