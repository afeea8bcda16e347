"""Of the names, addresses and numbers of 110 made plans, nearly all are masked, and little else."""

import re
import time

import pytest

from pipelines.workloads.bep.documents.cleaning import clean
from pipelines.workloads.bep.documents.lexicon import sound
from pipelines.workloads.bep.documents.names import LIKELY, UNLIKELY
from tests.processor import within
from tests.workloads.bep.documents.made_plans import all_names, measured


@pytest.mark.slow
@pytest.mark.parametrize("part", ["development", "held_out", "fresh", "later", "sheets", "coin"])
def test_nearly_all_is_masked_and_little_else(part):
    files = [all_names(f"{file}names.txt") for file in ("", "fresh_", "later_", "sheet_")]
    assert [sum(map(len, names.values())) for names in files] == [400, 216, 108, 400]
    shares, said = measured(part)
    precision, recall, labels = shares.pop("person")
    assert labels > 125 or (part == "coin" and labels == 120)
    assert (precision >= 0.9, recall >= 0.97) == (True, True), "\n".join(said)
    assert {kind: recall for kind, (_, recall, _) in shares.items() if recall < 0.95} == {}, "\n".join(said)


@pytest.mark.slow
def test_most_is_masked_in_plans_that_no_rule_was_mended_by():
    assert sum(map(len, all_names("latest_names.txt").values())) == 100
    shares, _ = measured("latest")
    precision, recall, labels = shares["person"]
    assert labels == 151
    assert precision >= 0.93
    assert recall >= 0.94
    assert {kind: shares[kind][1] for kind in ("telephone", "address", "project", "client")} == dict.fromkeys(
        ("telephone", "address", "project", "client"), 1.0
    )


@pytest.mark.slow
def test_most_persons_are_masked_in_three_more_plans_whose_errors_nobody_looked_at():
    assert sum(map(len, all_names("unseen_names.txt").values())) == 99
    precision, recall, labels = measured("unseen")[0]["person"]
    assert labels == 127
    assert precision >= 0.96
    assert recall >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "count", "right", "found"),
    [("apart", 155, 0.93, 0.97), ("others", 1189, 0.95, 0.96), ("judge", 499, 0.91, 0.97)],
)
def test_most_is_masked_in_plans_by_hands_that_did_not_know_the_rules(part, count, right, found):
    """Until now, of the persons 91.0, 88.8 and 91.8 % were found, of the addresses of the last two 59 and 56 %."""
    shares, said = measured(part)
    precision, recall, labels = shares["person"]
    assert labels == count
    assert (precision >= right, recall >= found) == (True, True), (precision, recall, "\n".join(said))
    if part != "apart":
        kinds = [shares[kind][1:] for kind in ("telephone", "address", "project")]
        assert sum(share * count for share, count in kinds) >= 0.95 * sum(count for _, count in kinds)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "right"), [("fifth_firms", 0.92), ("sixth_firms", 0.89), ("seventh_firms", 0.95)])
def test_nearly_all_is_masked_of_persons_in_a_list_of_the_staff(part, right):
    precision, recall, _ = measured(part, listed=True)[0]["person"]
    assert (precision >= right, recall >= 0.97) == (True, True), (precision, recall)


@pytest.mark.parametrize(
    "text",
    [
        "The Suite, the Plant Room, Curtain Walls and Villa Type B are modelled; families use Camel Case.",
        "Task Information Delivery Plans and other Plans are reviewed by the Information Manager.",
        "Mark Up drawings in Bluebeam; Grant access in Autodesk Docs; Rose Garden and Page Setup.",
        "North Elevation | Wing Wall | Box Culvert",
        "Name | Version\nAutodesk Revit | 2023\nTekla Structures | 2022",
        "Owner | Format\nSteel Model | IFC",
        "The rates, CAGR, MIDP, are known.",
        "Owner | Item\nCOS, VAE | Ramp",
        "Role | Company\nLead | Vemalu Krelstin",
        "The German Pavilion, the Latin Quarter.",
        "The lead is Nairn Oakes Architects. Minutes are kept by Nairn Oakes.",
        "Der Bereich gilt. Unbekannte Markierung, Falsche Anzahl.",
    ],
)
def test_terms_of_building_are_no_names(text):
    assert clean(text, mask=True, names=True).text == text


@pytest.mark.parametrize(
    "text",
    [
        "The model is checked by Qasira Velhomov before the review.",
        "Qasira Velhomov is our Information Manager.",
        "Discipline | Who\nSteel | Tom Barlow\nGlass | Priya Menon\nTimber | Ebbo Krelst",
        "Present: Eng. Ada Lovelace (Client), Mbego Tsvalu (Designer)",
        "Adresse du chantier : 17 bis, rue des Tanneurs, 57320 Bouzonville",
        "Ask first; Kurkma Drest keeps the list. Mail: kdrest@firm.example",
        "Unterlagen\n\nTirell Hadovan\n\nSeite",
        "The models are kept by the office and Kadrin Obešek, who left.",
        "The workshop is led on Mondays. Mirolda Vanesku leads it.",
        "Checked on site by KRELSTIN, Vemalu. Action closed.",
        "Present: Ada Lovelace \n\nThe file is late, AL to check.",
        "CDE log-ins: vobl.s, kdrest",
        "Signed for the Client ........ Mbego Tsvalu",
        "The team is led by Ada Lovelace, whose deputy is Tirell Krelst. The plan is kept.",
        "Contact the office; ask Tirell Drest first.",
    ],
)
def test_a_name_that_no_list_has_is_known_by_its_sound_and_by_what_stands_beside_it(text):
    """Until now, each of these stayed, in whole or in part."""
    found = clean(text, mask=True, names=True).text
    names = "Qasira|Velhomov|Krelst|Mbego|Tsvalu|Tanneurs|Kurkma|Drest|Tirell|Kadrin|Mirolda|vobl|KREL|AL|kdrest"
    assert not re.search(names, found), found


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The list is kept by Yordan Karadzhov.", "The list is kept by <name>."),
        ("Prepared by: Mark Bridges", "Prepared by: <name>"),
        ("Approved by | A. Stone", "Approved by | <name>"),
        ("Herr Stone berichtet.", "<name> berichtet."),
        (
            "Present: Alan Stone, Priya Menon\n\nThe list is of A. Stone.",
            "Present: <name>, <name>\n\nThe list is of <name>.",
        ),
        ("STONE, Priya sends the files.", "<name> sends the files."),
        ("Mbego Tsvalu\nDirector, Halcyon Estates", "<name>\nDirector, Halcyon Estates"),
        (
            "Present: Ada Lovelace, Tom Barlow\nItem | Owner\nDoors | AL/TB",
            "Present: <name>, <name>\nItem | Owner\nDoors | <name>/<name>",
        ),
        ("Present: Priya Menon (Balfour Beatty), Tom Barlow", "Present: <name> (Balfour Beatty), <name>"),
        ("Hi Priya,\n\nSee Priya Menon.", "Hi <name>,\n\nSee <name>."),
        ("Item | By\nDoors | Menon", "Item | By\nDoors | <name>"),
        ("yhaile (Yonas Haile)", "<name> (<name>)"),
        (
            "Present: Boris Kern, Ruth Bader, Bea Pohl\n\nGate | BK | RB | BP",
            "Present: <name>, <name>, <name>\n\nGate | <name> | <name> | <name>",
        ),
        ("Task | Owner\nConveyors | Keawe", "Task | Owner\nConveyors | <name>"),
    ],
)
def test_a_person_with_an_ordinary_surname_or_beside_a_firm_is_found_and_nothing_else(text, left):
    """Until now, each of these kept a name or lost another word."""
    assert clean(text, mask=True, names=True).text == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "Present: Travis Boudreaux, Parisa Khoshnevisan\n\nsleeves - TB and PK - Friday",
            "sleeves - <name> and <name> - Friday",
        ),
        (
            "Present: Thijs 't Lam, Marijke van den Oudenalder\n\nFloor | TtL\nWall | MvdO",
            "Floor | <name>\nWall | <name>",
        ),
        (
            "Zapsal: Petr Paděra, Jiří Pavlíček\n\nSe starostou Paděrou a s Pavlíčkem mluví jen on.",
            "Se starostou <name> a s <name> mluví jen on.",
        ),
        ("Verfasser: Anna vom Hofe\n\nDer Plan ist von Anna vom Hofe.", "Der Plan ist von <name>."),
        (
            "Wk | Jörg Wickert\n\n1.0 | Wk | Entwurf; zuständig: Wk, Mai\nWk 12 bis 14",
            "1.0 | <name> | Entwurf; zuständig: <name>, Mai\nWk 12 bis 14",
        ),
        ("Luca Ferrari-Moretti | lfm | Bau\n\nDecke | lfm | Mai; lfm beachten", "Decke | <name> | Mai; lfm beachten"),
        ("Mat | Matthew Reed\n\nMat foundation, Mat 300 mm.", "Mat foundation, Mat 300 mm."),
        ("PM | Paul Miller\nBIM Manager | Ada Lovelace\n\nThe PM approves.", "The PM approves."),
        ("(GWT = Gwenllian Tudor-Price)\n\nIssued by GWT or the GWTs.", "Issued by <name> or the GWTs."),
        ("Läsnä: Aino Kettunen\n\nKettusen ja Kettunenin malli.", "Kettusen ja <name> malli."),
        (
            "Present: Margaret Wyn Bellis\n\nThe room is small. ACTION MWB/IO 18 March",
            "The room is small. ACTION <name>/IO 18 March",
        ),
        ("The model is by Xiomara Villaseñor.\n\nXiomara's foreman came.", "<name> foreman came."),
        ("Le plan est de M. Issouf Ouattara.\n\nIl demande l'aide d'Issouf.", "Il demande l'aide <name>."),
        ("Kept by Sivalingam Naidoo.\n\nSiva is off sick.", "<name> is off sick."),
        ('The trade foreman is Rigoberto "Beto" Villarreal.', "The trade foreman is <name>."),
        ("The results are late.\n\nKind regards,\nLachy", "Kind regards,\n<name>"),
        ("TB = Tom Barlow, Lead\nGKT = Gurpreet Kaur Toor", "<name> = <name>, Lead\n<name> = <name>"),
        ("We met on Monday. Emeka called the office.", "We met on Monday. <name> called the office."),
        ("Structure | V. Subramaniam\n\n| Subramaniam\nServices | Revit", "| <name>\nServices | Revit"),
        ("Approved: DR. HARPREET SANDHU", "Approved: <name>"),
        ("Lead: Tom McAleese\n\nTMcA to send", "<name> to send"),
        (
            "Present: Hannah Birk, Ali Petrou\n\nThe lift: HB and AP to resolve",
            "The lift: <name> and <name> to resolve",
        ),
        ("The notes were taken by Hayato.", "The notes were taken by <name>."),
        ("Name | Role\nIngrid Wren, FAIA | Lead\n\nIngrid Wren, FAIA", "<name>, FAIA"),
        ("Job # BBP-61180\nSee BBP-61180.", "Job # <project>\nSee <project>."),
        ("Project number HRI-S-0288", "Project number <project>"),
        ("Send it to 3, montée des Carmes, 69005 Lyon; soon", "Send it to <address>; soon"),
        ("Post: The Old Goods Shed, Station Road, Garve IV23 2PS", "Post: <address>"),
        ("Keet: Vlieterdijk 2a, 1606 ZK Vlieterdam", "Keet: <address>"),
        ("Tel: 0341 / 555 01 72", "Tel: \ue001"),
    ],
)
def test_what_other_hands_write_is_masked(text, left):
    """Until now, each of these stayed, in whole or in part."""
    assert clean(text, mask=True, names=True).text.split("\n\n", text.count("\n\n"))[-1] == left


@pytest.mark.parametrize(
    "text",
    [
        "Arch Strengthening, Far North Package",
        "Call at 8:00 AM CT today",
        "Cladding by Hoare Lea; lifts by Schindler, Otis.",
        "3 | Price IFC turnover | open",
        "The file of Whitlow and Hale is late.",
        "The steel is shipped from Austin to Dallas and on to Chester.",
        "The Kalman Filter (KF) and the Gaussian Process (GP) are known.",
        "Devices: MS Intune, MR Headset.",
        "The sum is EUR 712 345 678 for 650 250 500 mm2.",
        "See Table 12, 1000 Samples; Stage 4, 2020 Edition; Block 4, Zone 3.",
        "Unit 3, Heat Recovery Centre; the Ground Floor, Main Building.",
        "Standort: Technikraum\nDer Technikraum ist kühl.",
        "Case BS-5950 and EN 1992, 2004 Edition",
    ],
)
def test_what_only_looks_like_a_name_or_an_address_stays(text):
    """Until now, most of these lost a word."""
    assert clean(text, mask=True, names=True).text == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "Client: Wexcombe Vale Realty Pvt. Ltd. | Rev B\nWVRPL pays; Wexcombe Greens is older.",
            "Client: <client> | Rev B\n<client> pays; <site> is older.",
        ),
        ("Bauherr: Kreis Ohrfeld, Bauamt\nDer Kreis Ohrfeld zahlt.", "Bauherr: <client>, Bauamt\nDer <client> zahlt."),
        (
            "The lift stands at Wexcombe Landing, opposite Ostrander Hall.",
            "The lift stands at <site>, opposite <site>.",
        ),
        ("Liffey Hall 2, BEP close-out", "<site> 2, BEP close-out"),
        ("Snug Cove Ferry Terminal Renewal, British Columbia", "<site>, British Columbia"),
        ("The hall is reached from Tregarth Lane.", "The hall is reached from <site>."),
        ("Client: Halden NHS Foundation Trust (HFT)\nThe HFT asks.", "Client: <client>\nThe <client> asks."),
        (
            "Client: Brackwater Housing Group\nThe BHG asks; BHG2_ARC.ifc",
            "Client: <client>\nThe <client> asks; <client>_ARC.ifc",
        ),
        ("Le b\u00e2timent Quenard jouxte l'internat Vautrot.", "Le <site> jouxte l'<site>."),
        ("Rev | Author | Checked\nA | S Okonedo | R J Penhallow", "Rev | Author | Checked\nA | <name> | <name>"),
        (
            "Grundst\u00fcck: Flur 12, Flurst\u00fcck 344/2. Cadastre : section AK n\u00b0 217.",
            "Grundst\u00fcck: <address>. Cadastre : <address>.",
        ),
        (
            "Employer's correspondence address | Trust Office, 4 Wharf Row",
            "Employer's correspondence address | <address>",
        ),
    ],
)
def test_a_word_that_no_dictionary_has_names_a_client_or_a_site(text, left):
    """Until now, each of these stayed, in whole or in part."""
    assert clean(text, mask=True, names=True).text == left


@pytest.mark.parametrize(
    "text",
    [
        "The plant is at Grid Line and at Level Two, beside the Washing Hall, the Ship Hall and the Haul Road.",
        "Le b\u00e2timent principal et le quartier sont neufs.",
        "We met at Orme Studio and at Fell Consulting Engineers.",
        "Grid A Columns, Wing B Doors | A Models | B Drawings",
        "Client: 3COM\nThe ARC asks.",
        "Client: Surrey Tramway Renewals\nARC v STR, TBD in the BEP by NEN 2580.",
    ],
)
def test_ordinary_words_where_a_place_may_stand_are_none(text):
    assert clean(text, mask=True, names=True).text.replace("<client>", "3COM") == text.replace(
        "Surrey Tramway Renewals", "3COM"
    )


def test_words_sound_like_names_or_not():
    assert min(map(sound, ["Alemayehu", "Moradi", "Shoshan"])) > LIKELY
    assert max(map(sound, ["Navisworks", "Informativa", "Overzicht"])) < UNLIKELY


def test_one_doubtful_hit_is_not_looked_for_elsewhere():
    """Until now, the last word of a false hit was masked everywhere."""
    text = "Paige Rooms are on level 2.\n\nRooms have numbers. Paige is a block."
    assert clean(text, mask=True, names=True).text.split("\n\n")[1] == "Rooms have numbers. Paige is a block."


def test_what_another_document_writes_in_lower_case_is_no_name():
    text = "Priya Skarnel is a support."
    assert clean(text, mask=True, names=True).text == "<name> is a support."
    assert clean(text, mask=True, names=True, words={"skarnel", "priya"}).text == text


def test_what_a_review_keeps_is_kept():
    cleaned = clean("Ask Priya Menon or Tom Barlow.", mask=True, names=True, keep={("name", "Priya Menon")})
    assert cleaned.text == "Ask Priya Menon or <name>."
    (part,) = cleaned.masked
    assert (part.kind, part.line, part.text) == ("name", 1, "Tom Barlow")
    assert "[Tom Barlow]" in part.context


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "count", "right", "found", "reached"),
    [
        ("first_firms", 317, 0.90, 0.93, 0.97),
        ("second_firms", 315, 0.85, 0.96, 0.93),
        ("third_firms", 278, 0.88, 0.92, 0.89),
        ("fourth_firms", 338, 0.90, 0.94, 0.89),
        ("fifth_firms", 123, 0.91, 0.91, 0.85),
        ("sixth_firms", 336, 0.88, 0.87, 0.87),
        ("seventh_firms", 116, 0.95, 0.82, 0.81),
    ],
)
def test_most_is_masked_in_documents_full_of_addresses_and_numbers(part, count, right, found, reached):
    """Of telephones, addresses and numbers of projects, 49, 46, 45, 47, 81, 65 and 80 % were found before."""
    shares, said = measured(part)
    precision, recall, labels = shares["person"]
    assert labels == count
    assert (precision >= right, recall >= found) == (True, True), (precision, recall, "\n".join(said))
    kinds = [shares[kind][1:] for kind in ("telephone", "address", "project")]
    assert sum(share * count for share, count in kinds) >= reached * sum(count for _, count in kinds)
    assert all(shares[kind][0] >= 0.92 for kind in ("telephone", "project"))
    assert shares["address"][0] >= (0.2 if part == "seventh_firms" else 0.92)  # its marks end elsewhere


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "count", "clients", "sites"), [("fourteenth_firms", 92, 0.97, 0.61), ("fifteenth_firms", 109, 0.83, 0.40)]
)
def test_more_clients_and_sites_are_masked_in_plans_of_any_manner(part, count, clients, sites):
    """By the rules of before, of the clients 57 and 73 % were found, of the sites 41 and 18 %."""
    shares, said = measured(part)
    precision, recall, labels = shares["person"]
    assert labels == count
    assert (precision >= 0.9, recall >= 0.95) == (True, True), (precision, recall, "\n".join(said))
    assert (shares["client"][1] >= clients, shares["site"][1] >= sites) == (True, True), shares
    assert shares["telephone"][1] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "count", "right", "found"), [("eighth_firms", 163, 0.9, 0.96), ("ninth_firms", 120, 0.95, 0.94)]
)
def test_most_is_masked_in_plans_of_international_firms(part, count, right, found):
    """By the rules of before, of the persons 95.7 and 88.3 % were found, of the sites 37 and 25 %."""
    precision, recall, labels = measured(part)[0]["person"]
    assert labels == count
    assert (precision >= right, recall >= found) == (True, True), (precision, recall)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("tenth_firms", {"person": (0.95, 1), "telephone": (1, 1), "address": (0.8, 0.9), "project": (1, 1)}),
        ("eleventh_firms", {"person": (0.92, 0.92), "telephone": (1, 1), "address": (1, 1), "project": (1, 0.85)}),
        ("twelfth_firms", {"person": (0.97, 0.98), "telephone": (1, 1), "client": (0.9, 0.98), "site": (0.95, 0.98)}),
        (
            "thirteenth_firms",
            {"person": (0.94, 0.97), "telephone": (1, 1), "project": (0.85, 0.98), "client": (1, 0.75)},
        ),
    ],
)
def test_most_is_masked_in_plans_of_firms_of_four_countries(part, found):
    """By the rules before each, of the persons 98, 93, 98 and 98 % were found, of the last clients 39."""
    shares = measured(part)[0]
    assert shares["email"][:2] == (1, 1)
    for kind, (precision, recall) in found.items():
        assert (shares[kind][0] >= precision, shares[kind][1] >= recall) == (True, True), (kind, shares[kind])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Rev | Checked | Approved\nP1 | QVX | ZKD", "Rev | Checked | Approved\nP1 | <name> | <name>"),
        ("Tz | Annegret Tölz | Lead\nMü | Grace Müller | Lead", "<name> | <name> | Lead\n<name> | <name> | Lead"),
        (
            "Present: Ruairí Ó Briain\nPlan | ROB\nModel | ROB, RB",
            "Present: <name>\nPlan | <name>\nModel | <name>, <name>",
        ),
        (
            "Punkt | Wer | Bis\nSchlitzplan | OvS | Mai\nTür | Annegret Tölz | Juni",
            "Punkt | Wer | Bis\nSchlitzplan | <name> | Mai\nTür | <name> | Juni",
        ),
        ("BIRGIT SCHÖNHUBER | ZÜBLIN | KOORDINATION", "<name> | ZÜBLIN | KOORDINATION"),
        ("ROW | BIRGIT SCHÖNHUBER | ZÜBLIN", "ROW | <name> | ZÜBLIN"),
        ("KATARZYNA WIŚNIEWSKA | ARUP | BIM", "<name> | ARUP | BIM"),
        ("BIRGIT SCHÖNHUBER - KOORDINATION", "<name> - KOORDINATION"),
        ("WHEN SIOBHAN FITZGERALD AND AOIFE GALLAGHER MET", "WHEN <name> AND <name> MET"),
        ("Heating: Wexo Dral-hun (+82-2-555-0163)", "Heating: <name> (\ue001)"),
        ("Bauherr (Client): Osmer Grelt plc", "Bauherr (Client): <client>"),
        ("Project name: Wexcombe Hall 3      Status: open", "Project name: <site> | Status: open"),
        ("No | Party | Person\n1 | Termo Sanit | Siobhan Quirke", "No | Party | Person\n1 | Termo Sanit | <name>"),
        ("Consultant | Part\nAda Lovelace | Structure", "Consultant | Part\n<name> | Structure"),
        ("Lead: Drew Barker\nDrew will check", "Lead: <name>\n<name> will check"),
        ("Ada Lovelace and co-workers met partners", "<name> and co-workers met partners"),
        ("We met Ada Lovelace and partners of hers", "We met <name> and partners of hers"),
        ("Role | Party\nClient | Grace Hopper", "Role | Party\nClient | <name>"),
        ("Lead: Jo Ann Pruitt\n- JP: trades sign on", "Lead: <name>\n- <name>: trades sign on"),
        ("Wi-Fi PW: Sommer2024!", "Wi-Fi PW: <secret>"),
        ("PW: 1234\nPW = 4471", "PW: <secret>\nPW = <secret>"),
    ],
)
def test_what_headings_and_labels_say_is_masked(text, left):
    assert re.sub("[\ue000-\uf8ff]", "\ue001", clean(text, mask=True, names=True).text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Rev | Checked | Approved\nP1 | TBC | PM",
        "Rev | Checked\nP1 | KTM\nFile P7-KTM-XX-M3-0001",  # a firm
        "Rev | Checked\nP1 | OPC\nThe planner (OPC) checks.",  # a role
        "LISTA DE SUBEMPREITEIROS E GUIA DE REMESSA",
        "Plan\nE. Ajouts\nF. Références",
        "Client | Lead\nGate | Door",
        "PW = 2400\nLW = 3200",
        "Deliverable | Resp. | Date\nModel | ARC | May\nFrame | STR | May\nGarden | LAN | May\nRooms | FAC | May",
        "Task | Who | When\nSlab | GC | May\nSteel | SE | May\nDucts | MC | May\nLifts | CL | May\nTests | TC | May",
        "Rev | By | Date | Note\nP1 | IFC | May | x\nP2 | CDE | May | y\nP3 | ARC | May | z",
        "Deliverable | Resp.\nModel | QVX\nFrame | ZKD",
        "Checked | Approved\nARC | STR",
        "Resp.: ARC",
        "ARK | 2027",
        "PW = 2400 mm, LW = 3",
    ],
)
def test_firms_roles_headings_and_sizes_stay(text):
    assert clean(text, mask=True, names=True).text == text


def test_a_long_line_without_spaces_is_read_quickly():
    began = time.process_time()
    clean("A1bC" * 25_000, mask=True, names=True)
    assert within(time.process_time() - began, 2)
