"""Files and folders of instances are read by the ending of their names."""

import numpy as np
import pytest

from common.errors import UserError
from pipelines.workloads.cvrp.instances.files import read as read_files
from tests.workloads.cvrp.files import SMALL, fields, npz, read, refusal, vrp


def test_a_folder_gives_its_instances_by_name(tmp_path):
    vrp(tmp_path, SMALL, "b.vrp")
    npz(tmp_path, "a.npz", **fields(num=2))
    vrp(tmp_path, SMALL, "C.VRP")
    vrp(tmp_path, "not for us", "._b.vrp")
    vrp(tmp_path, "Cost 9", "b.sol")
    assert {stem: len(problems) for stem, problems in read_files(tmp_path).items()} == {"C": 1, "a": 2, "b": 1}


def test_a_fault_in_a_folder_names_the_file(tmp_path):
    vrp(tmp_path, SMALL, "a.vrp")
    path = vrp(tmp_path, SMALL[:-20], "b.vrp")
    with pytest.raises(UserError, match=r"b\.vrp: DEPOT_SECTION is missing"):
        read(tmp_path)
    path.unlink()
    vrp(tmp_path, SMALL, "a.VRP")
    with pytest.raises(UserError, match=r"another file in the folder is also called a; rename one"):
        read(tmp_path)


def test_what_is_no_instance_file_is_refused(tmp_path):
    assert (
        refusal(tmp_path)
        == "holds no .npz, .vrp, .txt, .csv, .tsv, .geojson or .xlsx file; give the folder that holds the instances"
    )
    assert refusal(tmp_path / "none.vrp").startswith("cannot be read (No such file or directory); check the path")
    assert refusal(tmp_path / "none.npz").startswith("cannot be read (No such file or directory); check the path")
    assert refusal(vrp(tmp_path, SMALL, "small.text")).startswith("not an instance file; give a file ending in .npz, ")
    assert refusal(vrp(tmp_path, SMALL, "text.npz")).startswith("not an .npz file, or a damaged one (BadZipFile)")
    np.save(tmp_path / "array.npy", np.zeros(3))
    renamed = (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    assert refusal(renamed).startswith("not an .npz file, or a damaged one")
    npz(tmp_path, "some.npz", **fields())
    assert "is neither 'KEY : VALUE' nor" in refusal((tmp_path / "some.npz").rename(tmp_path / "binary.vrp"))
